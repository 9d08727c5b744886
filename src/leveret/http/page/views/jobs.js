/** All topics of the jobs service. */

import { queryString } from "../api.js";
import { h } from "../dom.js";
import { age, short } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { formDialog } from "../parts/dialog.js";
import { button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { goTo, link } from "../router.js";
import { vhost } from "../session.js";

const STATES = [
  ["Ready", "ready"],
  ["Scheduled", "scheduled", true],
  ["Leased", "leased", true],
  ["Dead", "dead"],
];

export function view({ reload }) {
  const add = () => enqueue({ namespace: vhost(), topic: "" }, reload);
  const table = new Table({
    label: "Topics",
    key: (t) => `${t.namespace}\n${t.topic}`,
    sortBy: 0,
    columns: columns(),
    empty: empty("No jobs yet.", button("Enqueue the first job", add, "main")),
  });
  const search = searchOver(table, {
    label: "Search topics",
    text: (t) => `${t.namespace} ${t.topic}`,
    choices: [
      ["All", () => true],
      ["Ready or leased", (t) => t.ready + t.leased > 0],
      ["With dead jobs", (t) => t.dead > 0],
    ],
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Jobs", actions: [button("Enqueue a job", add, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    table.setRows(await jobsCall("GET", `/stats${queryString({ namespace: vhost() })}`, { signal }));
    search.say();
  }
  return { title: "Jobs", el, refresh };
}

function columns() {
  const now = () => Date.now();
  return [
    {
      label: "Topic",
      sort: (t) => t.topic,
      cell: (t) => h("a", { href: link("jobs", t.namespace, t.topic), title: t.topic }, t.topic),
    },
    { label: "Namespace", sort: (t) => t.namespace, cell: (t) => t.namespace, width: "10rem", minor: true },
    ...STATES.map(([label, name, minor]) => ({
      label,
      number: true,
      sort: (t) => t[name],
      cell: (t) => h("span", { title: t.missing || null }, short(t[name])),
      width: label.length > 6 ? "7rem" : "5.5rem",
      minor,
    })),
    {
      label: "Oldest",
      number: true,
      sort: (t) => -(t.oldest_ready_ms ?? Infinity),
      cell: (t) => (t.oldest_ready_ms ? age(Math.max(0, now() - t.oldest_ready_ms)) : "–"),
      width: "6rem",
    },
  ];
}

/** Show a form to enqueue one job. A new topic is created. */
export async function enqueue({ namespace, topic }, reload) {
  let id = null;
  let made = null;
  await formDialog({
    title: "Enqueue a job",
    verb: "Enqueue",
    fields: [
      { name: "namespace", label: "Namespace", required: true, value: namespace || "default" },
      { name: "topic", label: "Topic", required: true, value: topic },
      { name: "payload", label: "Payload", type: "area" },
      { name: "priority", label: "Priority", type: "number", value: 0, hint: "Lower is more urgent." },
      { name: "delay", label: "Delay (seconds)", type: "number" },
      { name: "key", label: "Idempotency key", hint: "Only one job with this key is enqueued." },
    ],
    submit: async (values) => {
      const item = {
        namespace: values.namespace,
        topic: values.topic,
        payload: base64(values.payload),
        priority: values.priority ?? 0,
      };
      if (values.delay) item.deliver_after = new Date(Date.now() + values.delay * 1000).toISOString();
      if (values.key) item.idempotency_key = values.key;
      [id] = await jobsCall("POST", "/enqueue", { body: [item] });
      made = item;
    },
  });
  if (made) {
    notice(`Job ${id} is enqueued.`);
    reload();
    if (!topic) goTo(link("jobs", made.namespace, made.topic));
  }
}

function base64(text) {
  let octets = "";
  for (const octet of new TextEncoder().encode(text)) octets += String.fromCharCode(octet);
  return btoa(octets);
}
