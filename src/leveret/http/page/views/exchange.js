/** One exchange: the graph of its bindings, a routing test, rates, and actions. */

import { apiPath, del, get, post, queryString } from "../api.js";
import { fill, h } from "../dom.js";
import { exchangeName, pluralize, rate } from "../format.js";
import { Chart } from "../parts/chart.js";
import { formDialog } from "../parts/dialog.js";
import { Form } from "../parts/form.js";
import { DEPTH_MAX, drawBindingGraph } from "../parts/binding_graph.js";
import { badge, button, facts, head, sheet, tableFacts } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { goTo, link } from "../router.js";
import { countStats, rateHistory } from "../rate_history.js";
import { features } from "./exchanges.js";
import { publishFields, publishTo } from "./publish_form.js";
import { bind } from "./queue_actions.js";
import { drawBindings } from "./queue_bindings.js";

const WAVE_MAX = 20; // exchanges whose bindings are loaded together
const LINES = [
  { key: "publish_in", label: "Published" },
  { key: "publish_out", label: "Routed to queues" },
];

export function view({ params, reload }) {
  const { vhost } = params;
  const name = params.name === "amq.default" ? "" : params.name;
  const path = apiPath`/exchanges/${vhost}/${params.name}`;
  const shown = exchangeName(name);
  const sub = h("div", { class: "row" });
  const graph = h("div");
  const outgoing = h("div");
  const about = h("div", { class: "stack" });
  const chart = new Chart("Messages per second", LINES, rate);
  let bindings = [];
  let reached = null;
  const isOwn = (b) => b.source === name || (b.destination === name && b.destination_type === "exchange");
  const redraw = () => drawBindingGraph(graph, { vhost, name, bindings, reached });
  const testForm = routingTest(path, vhost, (found) => {
    reached = found && { queues: new Set(found.queues), exchanges: new Set(found.exchanges) };
    redraw();
  });
  const el = h(
    "div",
    { class: "view" },
    head({
      title: shown,
      crumb: [h("a", { href: "#/exchanges" }, "Exchanges"), ` in vhost ${vhost}`],
      sub,
      actions: [
        button("Publish", () => publish(vhost, name, shown)),
        name !== "" && button("Bind", () => bind({ vhost, source: name }, reload)),
        name !== "" &&
          !name.startsWith("amq.") &&
          button("Delete", () => remove(path, shown, bindings.filter(isOwn).length), "danger"),
      ],
    }),
    name === ""
      ? h(
          "p",
          { class: "note" },
          "The default exchange routes to every queue by its name. These bindings are not drawn.",
        )
      : sheet("Binding graph", graph),
    testForm,
    h("div", { class: "columns" }, sheet("Rates", chart.el), sheet("Details", about)),
    name !== "" && sheet("Bindings from this exchange", outgoing),
  );

  async function refresh(signal) {
    const [exchange, all] = await Promise.all([
      get(path, { signal }),
      name === "" ? [] : loadBindings(vhost, name, signal),
    ]);
    countStats(rateHistory(`exchange ${vhost}\n${name}`), exchange.message_stats, [
      "publish_in",
      "publish_out",
    ]);
    chart.update(rateHistory(`exchange ${vhost}\n${name}`));
    fill(sub, badge(exchange.type), features(exchange));
    fill(
      about,
      facts([
        ["Type", exchange.type],
        ["Durable", exchange.durable ? "yes" : "no"],
        ["Policy", exchange.policy],
      ]),
      h("h3", null, "Arguments"),
      tableFacts(exchange.arguments, "No arguments."),
    );
    bindings = all.filter((b) => b.source !== "");
    redraw();
    fill(
      outgoing,
      drawBindings(
        bindings.filter((b) => b.source === name),
        reload,
        "destination",
      ),
    );
  }
  return { title: shown, el, refresh };
}

/**
 * Load the bindings to an exchange, from it, and from the exchanges that it leads to. All bindings of
 * the vhost would be too many: every queue has one.
 */
async function loadBindings(vhost, name, signal) {
  const load = (exchange, side) =>
    get(apiPath`/exchanges/${vhost}/${exchange}/bindings/${side}`, { signal });
  const into = await load(name, "destination");
  const found = [into.filter((b) => b.source !== name)]; // a binding to itself is also among the others
  const seen = new Set([name]);
  let wave = [name];
  for (let depth = 0; depth < DEPTH_MAX && wave.length > 0; depth += 1) {
    const from = await Promise.all(wave.map((exchange) => load(exchange, "source")));
    found.push(...from);
    const next = from.flat().filter((b) => b.destination_type === "exchange");
    wave = [...new Set(next.map((b) => b.destination))]
      .filter((exchange) => !seen.has(exchange))
      .slice(0, WAVE_MAX);
    for (const exchange of wave) seen.add(exchange);
  }
  return found.flat();
}

/** Make the form that asks which queues a message would reach. */
function routingTest(path, vhost, onResult) {
  const form = new Form([
    { name: "key", label: "Routing key" },
    {
      name: "headers",
      label: "Headers",
      type: "lines",
      rows: 2,
      hint: "For headers exchanges. One name: value per line.",
    },
  ]);
  const result = h("div", { role: "status", "data-route": true });
  const element = h(
    "form",
    { class: "stack", novalidate: true },
    form.el,
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Test")),
    result,
  );
  element.onsubmit = async (event) => {
    event.preventDefault();
    try {
      const { key, headers } = form.values();
      const found = await post(`${path}/route`, { routing_key: key, headers });
      onResult(found);
      fill(result, drawRoute(found, vhost));
    } catch (fault) {
      onResult(null);
      fill(result, h("p", { class: "note bad" }, fault.message));
    }
  };
  return sheet(
    "Test routing",
    h("p", { class: "soft" }, "Shows which queues a message would reach. Nothing is published."),
    element,
  );
}

function drawRoute(found, vhost) {
  if (!found.routed)
    return h(
      "p",
      { class: "note warn" },
      "The message would reach no queue. It would be dropped, or returned if it is mandatory.",
    );
  const queues = found.queues.map((name, i) => [
    i > 0 && ", ",
    h("a", { href: link("queues", vhost, name) }, name),
  ]);
  return h(
    "p",
    { class: "note good" },
    `The message would reach ${pluralize(found.queues.length, "queue")}: `,
    queues,
    ".",
    found.alternate && " It goes through an alternate exchange.",
  );
}

async function publish(vhost, name, shown) {
  await formDialog({
    title: `Publish to “${shown}”`,
    verb: "Publish",
    wide: true,
    fields: publishFields(""),
    submit: async (values) => notice(await publishTo(vhost, name, values)),
  });
}

async function remove(path, shown, bindings) {
  let isDone = false;
  await formDialog({
    title: `Delete “${shown}”?`,
    about: `Its ${pluralize(bindings, "binding")} will be deleted too. Publishing to it will fail.`,
    verb: "Delete the exchange",
    danger: true,
    fields: [{ name: "unused", label: "Only if it has no bindings", type: "check" }],
    submit: async ({ unused }) => {
      await del(path + queryString({ "if-unused": unused || null }));
      isDone = true;
    },
  });
  if (isDone) {
    notice(`The exchange “${shown}” is deleted.`);
    goTo("#/exchanges");
  }
}
