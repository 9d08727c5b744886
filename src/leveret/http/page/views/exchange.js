/** One exchange: the graph of its bindings, a try of a route, publishing. */

import { at, del, get, post, query as queryOf } from "../api.js";
import { fill, h } from "../dom.js";
import { exchangeName, many, rate } from "../format.js";
import { Chart } from "../parts/chart.js";
import { formDialog } from "../parts/dialog.js";
import { Form } from "../parts/form.js";
import { drawGraph } from "../parts/graph.js";
import { badge, button, facts, head, sheet, tableFacts } from "../parts/list.js";
import { notice } from "../parts/notice.js";
import { go, link } from "../router.js";
import { countStats, historyOf } from "../series.js";
import { features } from "./exchanges.js";
import { publishFields, publishTo } from "./publish.js";
import { bind } from "./queue_actions.js";
import { drawBindings } from "./queue_bindings.js";

const LINES = [
  { key: "publish_in", label: "In" },
  { key: "publish_out", label: "Out to queues" },
];

export function view({ params, again }) {
  const { vhost } = params;
  const name = params.name === "amq.default" ? "" : params.name;
  const path = at`/exchanges/${vhost}/${params.name}`;
  const shown = exchangeName(name);
  const sub = h("div", { class: "row" });
  const graph = h("div");
  const outgoing = h("div");
  const about = h("div", { class: "stack" });
  const chart = new Chart("Messages per second", LINES, rate);
  let bindings = [];
  let reached = null;
  const redraw = () => drawGraph(graph, { vhost, name, bindings, reached });
  const tried = tryRoute(path, vhost, (found) => {
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
        name !== "" && button("Bind", () => bind({ vhost, source: name }, again)),
        name !== "" &&
          !name.startsWith("amq.") &&
          button("Delete", () => remove(path, shown), "danger"),
      ],
    }),
    name === ""
      ? h(
          "p",
          { class: "note" },
          "The default exchange leads to every queue by its name; these bindings are not drawn.",
        )
      : sheet("Where messages go", graph),
    tried,
    h("div", { class: "columns" }, sheet("Rates", chart.el), sheet("Facts", about)),
    name !== "" && sheet("Bindings from this exchange", outgoing),
  );

  async function refresh(signal) {
    const [exchange, all] = await Promise.all([
      get(path, { signal }),
      name === "" ? [] : get(at`/bindings/${vhost}`, { signal }),
    ]);
    countStats(historyOf(`exchange ${vhost}\n${name}`), exchange.message_stats, [
      "publish_in",
      "publish_out",
    ]);
    chart.update(historyOf(`exchange ${vhost}\n${name}`));
    fill(sub, badge(exchange.type), features(exchange));
    fill(
      about,
      facts([
        ["Type", exchange.type],
        ["Durable", exchange.durable ? "yes" : "no"],
        ["Policy", exchange.policy],
      ]),
      h("h3", null, "Arguments"),
      tableFacts(exchange.arguments, "It was declared without arguments."),
    );
    bindings = all.filter((b) => b.source !== "");
    redraw();
    fill(
      outgoing,
      drawBindings(
        bindings.filter((b) => b.source === name),
        again,
        "destination",
      ),
    );
  }
  return { title: shown, el, refresh };
}

/** Which queues would a message with this key and these headers reach? */
function tryRoute(path, vhost, onResult) {
  const form = new Form([
    { name: "key", label: "Routing key" },
    {
      name: "headers",
      label: "Headers",
      type: "lines",
      rows: 2,
      hint: "For headers exchanges: name: value.",
    },
  ]);
  const result = h("div", { role: "status", "data-route": true });
  const element = h(
    "form",
    { class: "stack", novalidate: true },
    form.el,
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Try")),
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
    "Try a route",
    h("p", { class: "soft" }, "Which queues would a message reach? Nothing is published."),
    element,
  );
}

function drawRoute(found, vhost) {
  if (!found.routed)
    return h(
      "p",
      { class: "note warn" },
      "It would reach no queue: it would be dropped, or returned if it is mandatory.",
    );
  const queues = found.queues.map((name, i) => [
    i > 0 && ", ",
    h("a", { href: link("queues", vhost, name) }, name),
  ]);
  return h(
    "p",
    { class: "note good" },
    `It would reach ${many(found.queues.length, "queue")}: `,
    queues,
    ".",
    found.alternate && " It takes the way of an alternate exchange.",
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

async function remove(path, shown) {
  let isDone = false;
  await formDialog({
    title: `Delete “${shown}”?`,
    about: "Its bindings go with it. Publishing to it fails from then on.",
    verb: "Delete the exchange",
    danger: true,
    fields: [{ name: "unused", label: "Only if nothing is bound to it", type: "check" }],
    submit: async ({ unused }) => {
      await del(path + queryOf({ "if-unused": unused || null }));
      isDone = true;
    },
  });
  if (isDone) {
    notice(`The exchange “${shown}” is deleted.`);
    go("#/exchanges");
  }
}
