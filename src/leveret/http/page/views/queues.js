/** All queues: search, sort and declare. One call loads them all, with few fields each. */

import { apiPath, get, put } from "../api.js";
import { h } from "../dom.js";
import { rate, short } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { goTo, link } from "../router.js";
import { session, vhost, vhostForNew } from "../session.js";

const COLUMNS = [
  "name",
  "vhost",
  "type",
  "state",
  "durable",
  "exclusive",
  "auto_delete",
  "policy",
  "paused",
  "messages",
  "messages_ready",
  "messages_unacknowledged",
  "consumers",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
].join(",");
const ARGUMENTS = [
  "x-message-ttl",
  "x-expires",
  "x-max-length",
  "x-max-length-bytes",
  "x-overflow",
  "x-dead-letter-exchange",
  "x-dead-letter-routing-key",
  "x-max-priority",
  "x-delivery-limit",
  "x-single-active-consumer",
  "x-remember",
  "x-max-age",
];

export function view({ reload }) {
  const declare = () => declareQueue(reload);
  const table = new Table({
    label: "Queues",
    key: (queue) => `${queue.vhost}\n${queue.name}`,
    sortBy: 0,
    columns: columns(),
    empty: empty("No queues yet.", button("Declare the first queue", declare, "main")),
  });
  const search = searchOver(table, {
    label: "Search queues",
    text: (queue) => queue.name,
    totals: (queues) =>
      `${short(sum(queues, "messages_ready"))} ready, ${short(sum(queues, "messages_unacknowledged"))} in flight`,
    choices: [
      ["All", () => true],
      ["With messages", (queue) => (queue.messages ?? 0) > 0],
      ["Without consumers", (queue) => !queue.consumers],
      ["Paused", (queue) => queue.paused],
    ],
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Queues", actions: [button("Declare a queue", declare, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    const path = vhost() ? apiPath`/queues/${vhost()}` : "/queues";
    table.setRows(await get(`${path}?columns=${COLUMNS}`, { signal }));
    search.say();
  }
  return { title: "Queues", el, refresh };
}

function columns() {
  const isAll = vhost() === "";
  const found = [
    { label: "Name", sort: (q) => q.name, cell: name },
    { label: "Type", sort: (q) => q.type ?? "", cell: features, width: "13rem", minor: true },
    {
      label: "Ready",
      number: true,
      sort: (q) => q.messages_ready ?? 0,
      cell: (q) => short(q.messages_ready ?? 0),
      width: "5.5rem",
    },
    {
      label: "In flight",
      number: true,
      sort: (q) => q.messages_unacknowledged ?? 0,
      cell: (q) => short(q.messages_unacknowledged ?? 0),
      width: "6.5rem",
      minor: true,
    },
    {
      label: "Consumers",
      number: true,
      sort: (q) => q.consumers ?? 0,
      cell: (q) => short(q.consumers ?? 0),
      width: "7rem",
      minor: true,
    },
    {
      label: "Published",
      number: true,
      sort: (q) => rateOf(q, "publish"),
      cell: (q) => rate(rateOf(q, "publish")),
      width: "7rem",
    },
    {
      label: "Delivered",
      number: true,
      sort: (q) => rateOf(q, "deliver_get"),
      cell: (q) => rate(rateOf(q, "deliver_get")),
      width: "7rem",
      minor: true,
    },
  ];
  if (isAll)
    found.splice(1, 0, {
      label: "Vhost",
      sort: (q) => q.vhost,
      cell: (q) => q.vhost,
      width: "7rem",
      minor: true,
    });
  return found;
}

function sum(queues, name) {
  return queues.reduce((total, queue) => total + (queue[name] ?? 0), 0);
}

function rateOf(queue, name) {
  return queue.message_stats?.[`${name}_details`]?.rate ?? 0;
}

function name(queue) {
  return h("a", { href: link("queues", queue.vhost, queue.name), title: queue.name }, queue.name);
}

/** Return badges with the type and features of a queue. */
export function features(queue) {
  return [
    badge(queue.type ?? "classic"),
    queue.paused && badge("paused", "warn"),
    queue.exclusive && badge("exclusive"),
    queue.auto_delete && badge("auto-delete"),
    queue.durable === false && badge("transient"),
    queue.policy && badge(`policy ${queue.policy}`),
    queue.state &&
      queue.state !== "running" &&
      queue.state !== "idle" &&
      badge(queue.state, "warn"),
  ];
}

async function declareQueue(reload) {
  let made = null;
  await formDialog({
    title: "Declare a queue",
    verb: "Declare",
    fields: [
      { name: "name", label: "Name", required: true },
      {
        name: "vhost",
        label: "Virtual host",
        type: "select",
        options: vhostOptions(),
        value: vhostForNew(),
      },
      { name: "type", label: "Type", type: "select", options: ["classic", "quorum", "stream"] },
      { name: "durable", label: "Durable (survives a restart)", type: "check", value: true },
      { name: "autoDelete", label: "Auto-delete (deleted when unused)", type: "check" },
      {
        name: "arguments",
        label: "Arguments",
        type: "lines",
        names: ARGUMENTS,
        hint: "One name: value per line.",
      },
    ],
    submit: async (values) => {
      const args = { ...values.arguments };
      if (values.type !== "classic") args["x-queue-type"] = values.type;
      const body = { durable: values.durable, auto_delete: values.autoDelete, arguments: args };
      await put(apiPath`/queues/${values.vhost}/${values.name}`, body);
      made = values;
    },
  });
  if (made) {
    notice(`The queue “${made.name}” is declared.`);
    reload();
    goTo(link("queues", made.vhost, made.name));
  }
}

export function vhostOptions() {
  return session.vhosts.length > 0 ? session.vhosts : ["/"];
}
