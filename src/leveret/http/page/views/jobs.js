/** All topics of the jobs service, and all schedules. */

import { queryString } from "../api.js";
import { fill, h } from "../dom.js";
import { age, rate, short } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { formDialog } from "../parts/dialog.js";
import { button, empty, head, sheet } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { goTo, link } from "../router.js";
import { vhost } from "../session.js";
import { base64 } from "./job_payload.js";
import { drawSchedules, editSchedule, loadSchedules } from "./job_schedules.js";

const STATES = [
  ["Ready", "ready"],
  ["Scheduled", "scheduled", true],
  ["Leased", "leased", true],
  ["Dead", "dead"],
];

const NAMESPACES_MAX = 50; // whose schedules are loaded

export function view({ reload }) {
  const add = () => enqueue({ namespace: vhost(), topic: "" }, reload);
  const addSchedule = () => editSchedule({ namespace: vhost(), topic: "" }, reload);
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
    totals: (topics) => STATES.map(([label, name]) => `${sum(topics, name)} ${label.toLowerCase()}`).join(", "),
    choices: [
      ["All", () => true],
      ["Ready or leased", (t) => t.ready + t.leased > 0],
      ["With dead jobs", (t) => t.dead > 0],
    ],
  });
  const schedules = h("div");
  const rates = new TopicRates();
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Jobs", actions: [button("Enqueue a job", add, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
    sheet("Schedules", schedules, button("Add a schedule", addSchedule)),
  );

  async function refresh(signal) {
    const topics = await jobsCall("GET", `/stats${queryString({ namespace: vhost() })}`, { signal });
    const namespaces = vhost() ? [vhost()] : [...new Set(topics.map((t) => t.namespace))];
    const planned = await loadSchedules(namespaces.slice(0, NAMESPACES_MAX), signal);
    table.setRows(rates.add(topics));
    fill(schedules, drawSchedules(planned, reload));
    search.say();
  }
  return { title: "Jobs", el, refresh };
}

/** Rates of topics, from the counters of two answers. */
class TopicRates {
  constructor() {
    this.last = new Map();
    this.at = 0;
  }

  add(topics) {
    const now = performance.now();
    const seconds = (now - this.at) / 1000;
    const before = this.last;
    this.at = now;
    this.last = new Map(topics.map((t) => [`${t.namespace}\n${t.topic}`, t]));
    return topics.map((t) => {
      const old = before.get(`${t.namespace}\n${t.topic}`);
      const grown = (name) =>
        old && t[name] >= old[name] ? (t[name] - old[name]) / seconds : undefined;
      return { ...t, inRate: grown("enqueued"), doneRate: grown("acked") };
    });
  }
}

/** Return a sum as text; it is unknown if a part is. */
function sum(topics, name) {
  return topics.some((t) => typeof t[name] !== "number")
    ? "unknown"
    : short(topics.reduce((total, t) => total + t[name], 0));
}

function columns() {
  const byRate = (label, name, width) => ({
    label,
    number: true,
    sort: (t) => t[name] ?? -1,
    cell: (t) => rate(t[name]),
    width,
    minor: true,
  });
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
      sort: (t) => t[name] ?? -1,
      cell: (t) => h("span", { title: t.missing || null }, short(t[name])),
      width: label.length > 6 ? "7rem" : "5.5rem",
      minor,
    })),
    {
      label: "Oldest",
      number: true,
      sort: (t) => -(t.oldest_ready_ms ?? Infinity),
      cell: (t) => (t.oldest_ready_ms ? age(Math.max(0, Date.now() - t.oldest_ready_ms)) : "–"),
      width: "6rem",
      about: "how long the oldest ready job has waited",
    },
    byRate("Enqueued", "inRate", "7rem"),
    byRate("Done", "doneRate", "6rem"),
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
