/** One topic: its jobs by state, rates, schedules and settings. */

import { apiPath, get, queryString, unlessRefused } from "../api.js";
import { fill, h } from "../dom.js";
import { age, count, duration, rate } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { Chart } from "../parts/chart.js";
import { formDialog } from "../parts/dialog.js";
import { button, facts, figures, head, sheet } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { rateHistory } from "../rate_history.js";
import { link, noteQuery } from "../router.js";
import { findJob } from "./job_dialog.js";
import { drawJobs, loadJobs, STATES } from "./job_list.js";
import { drawSchedules, editSchedule, loadSchedules } from "./job_schedules.js";
import { enqueue } from "./jobs.js";

const RATE_LINES = [
  { key: "enqueued", label: "Enqueued" },
  { key: "handed_out", label: "Handed out" },
  { key: "acked", label: "Acknowledged" },
  { key: "failed", label: "Failed" },
];

/** Counts of a topic that no client has used. Unknown counts are null. */
const NONE = {
  ready: 0,
  scheduled: 0,
  leased: 0,
  dead: 0,
  enqueued: 0,
  handed_out: 0,
  acked: 0,
  failed: 0,
  expired: 0,
};

export function view({ params, query, reload }) {
  const place = { namespace: params.namespace, topic: params.topic };
  const counts = h("div", { class: "stack" });
  const settings = h("div");
  const schedules = h("div");
  const rates = new Chart("Jobs per second", RATE_LINES, rate);
  const choices = h("div", { class: "choices", role: "group", "aria-label": "Jobs that are" });
  const jobs = h("div", { class: "stack" });
  const toQueue = h("span");
  let state = STATES.some(([name]) => name === query.get("show")) ? query.get("show") : null;
  const el = h(
    "div",
    { class: "view" },
    head({
      title: place.topic,
      crumb: [h("a", { href: "#/jobs" }, "Jobs"), ` in namespace ${place.namespace}`],
      actions: [
        toQueue,
        button("Find a job", () => findJob(place, reload)),
        button("Enqueue a job", () => enqueue(place, reload), "main"),
      ],
    }),
    h("div", { class: "columns" }, sheet("Jobs", counts), sheet("Rates", rates.el)),
    sheet("Jobs by state", h("div", { class: "stack" }, h("div", { class: "row" }, choices), jobs)),
    sheet("Schedules", schedules, button("Add a schedule", () => editSchedule(place, reload))),
    sheet("Settings", settings),
  );

  function choose(name) {
    state = name;
    noteQuery({ show: name });
    drawChoices();
    reload();
  }
  function drawChoices() {
    const item = ([name, label]) =>
      h(
        "button",
        { type: "button", "aria-pressed": String(name === state), onclick: () => choose(name) },
        label,
      );
    fill(choices, STATES.map(item));
  }

  async function refresh(signal) {
    const [all, chosen, planned, queue] = await Promise.all([
      jobsCall("GET", `/stats${queryString({ namespace: place.namespace })}`, { signal }),
      jobsCall("GET", apiPath`/topics/${place.namespace}/${place.topic}`, { signal }),
      loadSchedules([place.namespace], signal),
      // A store in Redis and PostgreSQL has no queues.
      unlessRefused(get(apiPath`/queues/${place.namespace}/${place.topic}?columns=name`, { signal })),
    ]);
    const stats = all.find((each) => each.topic === place.topic) ?? NONE;
    state ??= stats.dead > 0 ? "dead" : "ready";
    const found = await loadJobs(place, state, signal);
    const history = rateHistory(`jobs ${place.namespace}\n${place.topic}`);
    history.count(countersOf(stats), {});
    rates.update(history);
    drawChoices();
    fill(counts, drawCounts(stats));
    fill(jobs, drawJobs(place, state, found, stats[state], reload));
    fill(schedules, drawSchedules(planned.filter((s) => s.topic === place.topic), reload));
    fill(settings, drawSettings(place, chosen, reload));
    const href = link("queues", place.namespace, place.topic);
    fill(toQueue, queue && h("a", { class: "button", href }, "Show as queue"));
  }
  return { title: place.topic, el, refresh };
}

/** Return the counters of a topic for its rates. */
export function countersOf(stats) {
  return Object.fromEntries(
    RATE_LINES.map(({ key }) => [key, stats[key]]).filter(([, value]) => value !== undefined),
  );
}

function drawCounts(stats) {
  const waits = stats.oldest_ready_ms ? age(Math.max(0, Date.now() - stats.oldest_ready_ms)) : null;
  return [
    stats.missing &&
      h("p", { class: "note warn" }, `The jobs could not be counted: ${stats.missing}.`),
    figures(
      STATES.map(([name, label]) => [label, h("span", { "data-count": name }, count(stats[name]))]),
    ),
    facts([["Oldest ready job waits for", waits]]),
    h("h3", null, "Since the node started"),
    facts([
      ["Enqueued", count(stats.enqueued)],
      ["Handed out to workers", count(stats.handed_out)],
      ["Acknowledged", count(stats.acked)],
      ["Failed", count(stats.failed)],
      ["Leases that ran out", count(stats.expired)],
    ]),
  ];
}

function drawSettings(place, chosen, reload) {
  return [
    facts([
      ["Retries", count(chosen.retries_max)],
      ["First retry after", duration(chosen.backoff_ms)],
      ["Maximum retry delay", duration(chosen.backoff_ms_max)],
      ["Lease", duration(chosen.lease_ms)],
      ["Maximum leased at once", atOnce(chosen.concurrency_max)],
    ]),
    button("Change", () => change(place, chosen, reload)),
  ];
}

function atOnce(most) {
  return most === null ? "no limit" : most === 0 ? "0: the topic is paused" : count(most);
}

async function change(place, chosen, reload) {
  const isDone = await formDialog({
    title: `Settings of “${place.topic}”`,
    verb: "Save",
    fields: [
      { name: "retries_max", label: "Retries", type: "number", required: true, value: chosen.retries_max, hint: "After the first attempt. Then the job is dead." },
      { name: "backoff_ms", label: "First retry after (ms)", type: "number", required: true, value: chosen.backoff_ms, hint: "Doubles with each retry." },
      { name: "backoff_ms_max", label: "Maximum retry delay (ms)", type: "number", required: true, value: chosen.backoff_ms_max },
      { name: "jitter", label: "Jitter (0–1)", type: "number", required: true, value: chosen.jitter, hint: "Random share of the delay, so that retries do not come together." },
      { name: "lease_ms", label: "Lease (ms)", type: "number", required: true, value: chosen.lease_ms, hint: "Time for which a worker holds a job." },
      { name: "concurrency_max", label: "Maximum leased at once", type: "number", value: chosen.concurrency_max, hint: "Empty: no limit. 0: paused." },
    ],
    submit: (values) =>
      jobsCall("PUT", apiPath`/topics/${place.namespace}/${place.topic}`, { body: { ...chosen, ...values } }),
  });
  if (isDone) notice("The settings are saved.");
  reload();
}
