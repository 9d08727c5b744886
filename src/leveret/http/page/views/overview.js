/** The overview: message rates, totals, node, listeners, and churn. */

import { get, unlessRefused } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration, rate, short } from "../format.js";
import { countOverview } from "../frame.js";
import { Chart } from "../parts/chart.js";
import { badge, facts, figures, head, list, sheet } from "../parts/elements.js";
import { may } from "../session.js";

export const RATE_LINES = [
  { key: "publish", label: "Published" },
  { key: "deliver_get", label: "Delivered" },
  { key: "ack", label: "Acknowledged" },
  { key: "redeliver", label: "Redelivered" },
];
const OTHER_LINES = [
  { key: "confirm", label: "Confirmed" },
  { key: "get", label: "Got (basic.get)" },
  { key: "return_unroutable", label: "Unroutable, returned" },
  { key: "drop_unroutable", label: "Unroutable, dropped" },
];
export const DEPTH_LINES = [
  { key: "ready", label: "Ready" },
  { key: "unacked", label: "In flight" },
];
const CHURN = [
  ["connection_created", "Connections opened"],
  ["connection_closed", "Connections closed"],
  ["channel_created", "Channels opened"],
  ["channel_closed", "Channels closed"],
  ["queue_declared", "Queues declared"],
  ["queue_created", "Queues created"],
  ["queue_deleted", "Queues deleted"],
];

export function view() {
  const rates = new Chart("Messages per second", RATE_LINES, rate);
  const others = new Chart("Further messages per second", OTHER_LINES, rate);
  const depth = new Chart("Messages in queues", DEPTH_LINES, short);
  const sub = h("span");
  const totals = h("div");
  const nodes = h("div", { class: "stack" });
  const listeners = h("div");
  const churn = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Overview", sub }),
    h("section", { class: "sheet", "aria-label": "Totals" }, totals),
    h(
      "div",
      { class: "columns" },
      sheet("Message rates", rates.el),
      sheet("Messages in queues", depth.el),
      sheet("Confirms, gets and unroutable messages", others.el),
    ),
    h(
      "div",
      { class: "columns" },
      h("div", { class: "stack" }, sheet("Node", nodes), sheet("Listeners", listeners)),
      sheet("Churn", churn),
    ),
  );

  async function refresh(signal) {
    const [overview, found] = await Promise.all([
      get("/overview", { signal }),
      may("monitoring") ? unlessRefused(get("/nodes", { signal })) : null,
    ]);
    const history = await countOverview(overview, signal);
    for (const chart of [rates, depth, others]) chart.update(history);
    fill(sub, subtitle(overview));
    fill(totals, drawTotals(overview));
    fill(nodes, drawNodes(found));
    fill(listeners, drawListeners(overview.listeners ?? []));
    fill(churn, drawChurn(overview.churn_rates ?? {}));
  }
  return { title: "Overview", el, refresh };
}

function subtitle(overview) {
  const version = overview.product_version ?? overview.rabbitmq_version ?? "";
  return [
    overview.cluster_name ?? overview.node,
    " · ",
    overview.product_name ?? "Leveret",
    " ",
    version,
  ];
}

function drawTotals({ queue_totals: waiting = {}, object_totals: objects = {} }) {
  const to = (href, value) => h("a", { href }, short(value));
  return figures([
    [
      "Ready",
      h("span", { title: count(waiting.messages_ready) }, short(waiting.messages_ready)),
    ],
    [
      "In flight",
      h(
        "span",
        { title: count(waiting.messages_unacknowledged) },
        short(waiting.messages_unacknowledged),
      ),
    ],
    ["Queues", to("#/queues", objects.queues)],
    ["Exchanges", to("#/exchanges", objects.exchanges)],
    ["Connections", to("#/connections", objects.connections)],
    ["Channels", to("#/channels", objects.channels)],
    ["Consumers", short(objects.consumers)],
  ]);
}

function drawNodes(nodes) {
  if (nodes === null)
    return h("p", { class: "soft" }, "Only users with the tag “monitoring” can see the node.");
  return nodes.map((node) =>
    h(
      "div",
      { class: "stack" },
      h("div", { class: "row" }, h("h3", null, h("a", { href: "#/node" }, node.name)), state(node)),
      facts([
        ["Uptime", typeof node.uptime === "number" ? duration(node.uptime) : null],
        ["Memory", `${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`],
        [
          "Free disk",
          node.disk_free > 0
            ? `${bytes(node.disk_free)}, alarm below ${bytes(node.disk_free_limit)}`
            : null,
        ],
        [
          "Open files",
          node.fd_used !== undefined ? `${count(node.fd_used)} of ${count(node.fd_total)}` : null,
        ],
        ["Processors", node.processors],
        ["Process id", node.os_pid],
        ["Data directory", node.db_dir && h("span", { class: "mono" }, node.db_dir)],
      ]),
    ),
  );
}

function state(node) {
  if (node.mem_alarm) return badge("memory alarm", "bad");
  if (node.disk_free_alarm) return badge("disk alarm", "bad");
  return badge("no alarm", "good");
}

function drawListeners(listeners) {
  return list(
    [
      { label: "Protocol", cell: (l) => l.protocol },
      { label: "Address", cell: (l) => l.ip_address ?? l.interface ?? "" },
      { label: "Port", number: true, cell: (l) => String(l.port) },
    ],
    listeners,
    "No listeners.",
  );
}

function drawChurn(churn) {
  const rows = CHURN.filter(([key]) => churn[key] !== undefined);
  return list(
    [
      { label: "Event", cell: ([, label]) => label },
      { label: "Total", number: true, cell: ([key]) => count(churn[key]) },
      { label: "Rate", number: true, cell: ([key]) => rate(churn[`${key}_details`]?.rate) },
    ],
    rows,
    "No events yet.",
  );
}
