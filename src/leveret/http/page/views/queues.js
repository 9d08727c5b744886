/** All queues: search, sort and declare. The broker sorts and filters; visible pages are loaded. */

import { apiPath, put } from "../api.js";
import { h } from "../dom.js";
import { bytes, percent, rate, short } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { pagedList } from "../parts/paged_list.js";
import { Table } from "../parts/table.js";
import { goTo, link } from "../router.js";
import { session, vhost, vhostForNew } from "../session.js";

const FIELDS = "name,vhost,type,state,durable,exclusive,auto_delete,policy,paused,consumers,messages_damaged";
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
  const search = pagedList(table, {
    label: "Search queues",
    path: listPath,
    fields: FIELDS,
    totals: (sums) =>
      `${short(sums.messages_ready)} ready, ${short(sums.messages_unacknowledged)} in flight`,
    choices: [
      ["All", ""],
      ["With messages", "with_messages"],
      ["Without consumers", "without_consumers"],
      ["Paused", "paused"],
    ],
    reload,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Queues", actions: [button("Declare a queue", declare, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );
  return { title: "Queues", el, refresh: search.refresh };
}

/** Return the path of the queues of the selected vhost, or of all. */
export function listPath() {
  return vhost() ? apiPath`/queues/${vhost()}` : "/queues";
}

function columns() {
  return [
    { label: "Name", sort: "name", cell: name },
    ...(vhost() === "" ? [vhostColumn()] : []),
    { label: "Type", sort: "type", cell: features, width: "13rem", minor: true },
    { ...counted("Ready", "messages_ready", "5.5rem"), minor: false },
    counted("In flight", "messages_unacknowledged", "6.5rem"),
    { ...counted("Scheduled", "messages_scheduled", "7rem"), extra: true },
    {
      label: "Size",
      number: true,
      sort: "message_bytes",
      field: "message_bytes",
      cell: (q) => bytes(q.message_bytes),
      width: "6.5rem",
      minor: true,
      extra: true,
      about: "payloads of all messages",
    },
    counted("Consumers", "consumers", "7rem"),
    {
      label: "Capacity",
      number: true,
      sort: "consumer_utilisation",
      field: "consumer_utilisation",
      cell: (q) => (q.consumers > 0 ? percent(q.consumer_utilisation) : "–"),
      width: "6.5rem",
      minor: true,
      extra: true,
      about: "share of the consumers that can take a message now",
    },
    { ...rateColumn("Published", "publish"), minor: false },
    rateColumn("Delivered", "deliver_get"),
    { ...rateColumn("Acknowledged", "ack", "8.5rem"), extra: true },
    { ...rateColumn("Redelivered", "redeliver", "8rem"), extra: true },
    {
      label: "Policy",
      sort: "policy",
      cell: (q) => q.policy ?? "–",
      width: "9rem",
      minor: true,
      extra: true,
    },
  ];
}

/** Return the column of the vhost, for lists of all vhosts. */
export function vhostColumn() {
  return { label: "Vhost", sort: "vhost", cell: (q) => q.vhost, width: "7rem", minor: true };
}

/** Return a column of a count that the API calls `field`. */
export function counted(label, field, width) {
  return {
    label,
    number: true,
    sort: field,
    field,
    cell: (row) => short(row[field]),
    width,
    minor: true,
  };
}

/** Return a column of a rate of `message_stats`. */
export function rateColumn(label, name, width = "7rem") {
  const field = `message_stats.${name}_details.rate`;
  const cell = (row) => rate(row.message_stats?.[`${name}_details`]?.rate);
  return { label, number: true, sort: field, field, cell, width, minor: true };
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
    queue.messages_damaged > 0 && badge("damaged messages", "bad"),
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
