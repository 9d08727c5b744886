/** One channel: its messages in flight, rates and consumers. */

import { apiPath, get } from "../api.js";
import { connectionName, loadConnectionNames } from "../connection_names.js";
import { fill, h } from "../dom.js";
import { count, rate } from "../format.js";
import { RATES } from "../frame.js";
import { Chart } from "../parts/chart.js";
import { button, facts, figures, head, list, sheet } from "../parts/elements.js";
import { goTo, link } from "../router.js";
import { countStats, rateHistory } from "../rate_history.js";
import { closeConnection } from "./connections.js";
import { RATE_LINES } from "./overview.js";

export function view({ params }) {
  const { name } = params;
  const sub = h("div", { class: "row" });
  const totals = h("div");
  const about = h("div");
  const consumers = h("div");
  const chart = new Chart("Messages per second", RATE_LINES, rate);
  let connection = "";
  const close = async () => {
    if (await closeConnection(connection)) goTo("#/channels");
  };
  const el = h(
    "div",
    { class: "view" },
    head({
      title: name,
      crumb: h("a", { href: "#/channels" }, "Channels"),
      sub,
      actions: [button("Close the connection", close, "danger")],
    }),
    h("section", { class: "sheet", "aria-label": "Totals" }, totals),
    h("div", { class: "columns" }, sheet("Rates", chart.el), sheet("Details", about)),
    sheet("Consumers", consumers),
  );

  async function refresh(signal) {
    const channel = await get(apiPath`/channels/${name}`, { signal });
    connection = channel.connection_details?.name ?? "";
    const history = rateHistory(`channel ${name}`);
    countStats(history, channel.message_stats, RATES);
    chart.update(history);
    await loadConnectionNames(signal);
    fill(
      sub,
      "on ",
      h("a", { href: link("connections", connection), title: connection }, connectionName(connection)),
    );
    fill(
      totals,
      figures([
        ["In flight", count(channel.messages_unacknowledged)],
        ["Unconfirmed", count(channel.messages_unconfirmed)],
        ["Uncommitted", count(channel.messages_uncommitted)],
        ["Consumers", count(channel.consumer_count)],
      ]),
    );
    fill(about, drawFacts(channel));
    fill(consumers, drawConsumers(channel.consumer_details ?? []));
  }
  return { title: name, el, refresh };
}

function drawFacts(c) {
  return facts([
    ["Number", c.number],
    ["State", c.state],
    ["User", c.user],
    ["Vhost", c.vhost],
    ["Mode", c.transactional ? "transactional" : c.confirm ? "confirms" : "plain"],
    ["Prefetch", c.prefetch_count ? count(c.prefetch_count) : "no limit"],
    ["Channel prefetch", c.global_prefetch_count ? count(c.global_prefetch_count) : null],
    ["Next publish number", typeof c.next_publish_seqno === "number" ? count(c.next_publish_seqno) : null],
    ["Idle since", c.idle_since],
  ]);
}

function drawConsumers(consumers) {
  return list(
    [
      { label: "Tag", cell: (c) => h("span", { class: "mono" }, c.consumer_tag) },
      {
        label: "Queue",
        cell: (c) =>
          h(
            "a",
            { href: link("queues", c.queue?.vhost ?? "/", c.queue?.name ?? "") },
            c.queue?.name,
          ),
      },
      {
        label: "Prefetch",
        number: true,
        cell: (c) => (c.prefetch_count ? count(c.prefetch_count) : "no limit"),
      },
      { label: "Acks", cell: (c) => (c.ack_required ? "manual" : "automatic") },
    ],
    consumers,
    "No consumers.",
  );
}
