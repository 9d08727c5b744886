/** One topic: jobs by state, search by id, dead jobs with their errors, and settings. */

import { apiPath, queryString } from "../api.js";
import { fill, h } from "../dom.js";
import { age, count, duration, pluralize, time } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { confirm, formDialog, openDialog } from "../parts/dialog.js";
import { badge, button, facts, figures, head, list, sheet } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { enqueue } from "./jobs.js";

const DEAD_SHOWN = 100;
const STATES = [
  ["ready", "Ready"],
  ["scheduled", "Scheduled"],
  ["leased", "Leased"],
  ["dead", "Dead"],
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

export function view({ params, reload }) {
  const place = { namespace: params.namespace, topic: params.topic };
  const counts = h("div");
  const settings = h("div");
  const dead = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({
      title: place.topic,
      crumb: [h("a", { href: "#/jobs" }, "Jobs"), ` in namespace ${place.namespace}`],
      actions: [
        button("Find a job", () => find(place, reload)),
        button("Enqueue a job", () => enqueue(place, reload), "main"),
      ],
    }),
    h("div", { class: "columns" }, sheet("Jobs", counts), sheet("Settings", settings)),
    sheet("Dead jobs", dead),
  );

  async function refresh(signal) {
    const [all, chosen, lost] = await Promise.all([
      jobsCall("GET", `/stats${queryString({ namespace: place.namespace })}`, { signal }),
      jobsCall("GET", apiPath`/topics/${place.namespace}/${place.topic}`, { signal }),
      jobsCall("GET", `/dead${queryString({ ...place, limit: DEAD_SHOWN })}`, { signal }),
    ]);
    const stats = all.find((each) => each.topic === place.topic);
    fill(counts, drawCounts(stats ?? NONE));
    fill(settings, drawSettings(place, chosen, reload));
    fill(dead, drawDead(place, lost, stats?.dead ?? lost.length, reload));
  }
  return { title: place.topic, el, refresh };
}

function drawCounts(stats) {
  const waits = stats.oldest_ready_ms ? age(Math.max(0, Date.now() - stats.oldest_ready_ms)) : null;
  return [
    figures(
      STATES.map(([name, label]) => [
        label,
        h("span", { "data-count": name }, count(stats[name])),
      ]),
    ),
    facts([
      ["Not counted", stats.missing || null],
      ["Oldest ready", waits],
      ["Enqueued", count(stats.enqueued)],
      ["Dequeued", count(stats.handed_out)],
      ["Acknowledged", count(stats.acked)],
      ["Failed", count(stats.failed)],
      ["Expired leases", count(stats.expired)],
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
      ["Maximum leased at once", chosen.concurrency_max ? count(chosen.concurrency_max) : "no limit"],
    ]),
    button("Change", () => change(place, chosen, reload)),
  ];
}

async function change(place, chosen, reload) {
  const isDone = await formDialog({
    title: `Settings of “${place.topic}”`,
    verb: "Save",
    fields: [
      { name: "retries_max", label: "Retries", type: "number", required: true, value: chosen.retries_max, hint: "After the first attempt. Then the job is dead." },
      { name: "backoff_ms", label: "First retry after (ms)", type: "number", required: true, value: chosen.backoff_ms, hint: "Doubles with each retry." },
      { name: "backoff_ms_max", label: "Maximum retry delay (ms)", type: "number", required: true, value: chosen.backoff_ms_max },
      { name: "jitter", label: "Jitter (0–1)", type: "number", required: true, value: chosen.jitter },
      { name: "lease_ms", label: "Lease (ms)", type: "number", required: true, value: chosen.lease_ms },
      { name: "concurrency_max", label: "Maximum leased at once", type: "number", value: chosen.concurrency_max, hint: "Empty: no limit." },
    ],
    submit: (values) =>
      jobsCall("PUT", apiPath`/topics/${place.namespace}/${place.topic}`, { body: { ...chosen, ...values } }),
  });
  if (isDone) notice("The settings are saved.");
  reload();
}

function drawDead(place, jobs, total, reload) {
  if (jobs.length === 0)
    return h("p", { class: "soft" }, "No dead jobs.");
  return [
    h(
      "div",
      { class: "row" },
      h(
        "span",
        { class: "grow soft", role: "status" },
        total > jobs.length ? `Showing ${count(jobs.length)} of ${count(total)}.` : `${count(total)} in total.`,
      ),
      button("Redrive all", () => redrive(place, null, reload, total)),
      button("Delete all", () => remove(place, null, reload, total), "danger"),
    ),
    list(
      [
        { label: "Id", cell: (job) => h("span", { class: "mono" }, job.id) },
        { label: "Attempts", number: true, cell: (job) => count(job.attempts) },
        { label: "Last failed", cell: (job) => formatTime(lastFailure(job)?.time) },
        { label: "Last error", cell: (job) => firstLine(lastFailure(job)?.error) },
        {
          label: "",
          cell: (job) =>
            h(
              "div",
              { class: "row end" },
              button("Show", () => show(place, job, reload), "small"),
              button("Redrive", () => redrive(place, [job.id], reload), "small"),
              button("Delete", () => remove(place, [job.id], reload), "small danger"),
            ),
        },
      ],
      jobs,
      "",
    ),
  ];
}

async function redrive(place, ids, reload, total = 1) {
  if (ids === null) {
    const isSure = await confirm({
      title: `Redrive ${pluralize(total, "dead job")}?`,
      text: "They become ready again, and their retries are reset.",
      verb: "Redrive all",
      danger: false,
    });
    if (!isSure) return;
  }
  await attempt(
    () => jobsCall("POST", "/dead/redrive", { body: withIds(place, ids) }),
    ids ? "The job is ready again." : "The jobs are ready again.",
  );
  reload();
}

async function remove(place, ids, reload, total = 1) {
  const isSure = await confirm({
    title: ids ? `Delete job ${ids[0]}?` : `Delete ${pluralize(total, "dead job")}?`,
    text: "This cannot be undone.",
    verb: "Delete",
  });
  if (!isSure) return;
  await attempt(
    () => jobsCall("POST", "/dead/delete", { body: withIds(place, ids) }),
    ids ? "The job is deleted." : "The dead jobs are deleted.",
  );
  reload();
}

function withIds(place, ids) {
  return ids === null ? place : { ...place, ids };
}

async function find(place, reload) {
  let found = null;
  await formDialog({
    title: "Find a job",
    verb: "Find",
    fields: [{ name: "id", label: "Id", required: true }],
    submit: async ({ id }) => {
      found = await jobsCall("GET", `/job${queryString({ ...place, id })}`);
    },
  });
  if (found) show(place, found, reload);
}

/** Show a job with its history, and the actions for its state. */
function show(place, job, reload) {
  const act = async (path, done) => {
    opened.close();
    await attempt(() => jobsCall("POST", path, { body: { ...place, id: job.id } }), done);
    reload();
  };
  const opened = openDialog({
    title: `Job ${job.id}`,
    wide: true,
    body: h(
      "div",
      { class: "stack" },
      facts([
        ["State", badge(job.state, job.state === "dead" ? "bad" : "")],
        ["Priority", String(job.priority)],
        ["Attempts", count(job.attempts)],
        ["Enqueued", formatTime(job.created_at)],
        ["Delivered not before", formatTime(job.deliver_after)],
        ["Leased until", job.lease_expires_at ? formatTime(job.lease_expires_at) : null],
        ["Idempotency key", job.idempotency_key],
        ["Fair key", job.fair_key],
      ]),
      h("h3", null, "Payload"),
      h("pre", { class: "payload", tabindex: "0" }, payloadText(job.payload)),
      h("h3", null, "Failures"),
      drawFailures(job.failures ?? []),
    ),
    footer: h(
      "footer",
      null,
      job.state === "scheduled" &&
        button("Deliver now", () => act("/deliver-now", "The job is ready.")),
      (job.state === "scheduled" || job.state === "ready") &&
        button("Cancel the job", () => act("/cancel", "The job is cancelled."), "danger"),
      button("Close", () => opened.close()),
    ),
  });
}

function drawFailures(failures) {
  if (failures.length === 0) return h("p", { class: "soft" }, "None.");
  return h(
    "ol",
    { class: "failures" },
    failures.map((failure) =>
      h(
        "li",
        null,
        h("div", { class: "soft" }, `Attempt ${failure.attempt}, ${formatTime(failure.time)}`),
        h("pre", { tabindex: "0" }, failure.error),
      ),
    ),
  );
}

function lastFailure(job) {
  return job.failures?.[job.failures.length - 1];
}

function firstLine(text) {
  return (text ?? "–").split("\n", 1)[0];
}

function formatTime(text) {
  return text ? time(Date.parse(text)) : "–";
}

/** Return a payload as text; binary data stays base64. */
function payloadText(payload) {
  const octets = Uint8Array.from(atob(payload ?? ""), (c) => c.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return payload;
  }
}
