/** The first jobs of a topic by state, and the actions on dead jobs. */

import { queryString } from "../api.js";
import { h } from "../dom.js";
import { age, count, pluralize } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { confirm } from "../parts/dialog.js";
import { button, list } from "../parts/elements.js";
import { attempt } from "../parts/notice.js";
import { formatTime, openJob } from "./job_dialog.js";

const SHOWN = 100;
/** The states of a job, by the names of the API. */
export const STATES = [
  ["ready", "Ready"],
  ["scheduled", "Scheduled"],
  ["leased", "Leased"],
  ["dead", "Dead"],
];

/** Load the first jobs of a state, without payloads. */
export function loadJobs(place, state, signal) {
  const wanted = { ...place, limit: SHOWN, payloads: "false" };
  const path = state === "dead" ? "/dead" : "/jobs";
  const query = queryString(state === "dead" ? wanted : { ...wanted, state });
  return jobsCall("GET", path + query, { signal });
}

export function drawJobs(place, state, jobs, total, reload) {
  if (jobs.length === 0) return h("p", { class: "soft" }, `No ${state} jobs.`);
  const isDead = state === "dead";
  return [
    h(
      "div",
      { class: "row" },
      h("span", { class: "grow soft", role: "status" }, shownText(jobs.length, total)),
      isDead && button("Redrive all", () => redrive(place, null, reload, total)),
      isDead && button("Delete all", () => remove(place, null, reload, total), "danger"),
    ),
    list([...columns(state), actionColumn(place, isDead, reload)], jobs, ""),
  ];
}

function shownText(shown, total) {
  if (typeof total !== "number") return `The first ${count(shown)}.`;
  return total > shown ? `The first ${count(shown)} of ${count(total)}.` : `${count(total)} in total.`;
}

function columns(state) {
  const id = { label: "Id", cell: (job) => h("span", { class: "mono" }, job.id) };
  const attempts = { label: "Attempts", number: true, cell: (job) => count(job.attempts) };
  const priority = { label: "Priority", number: true, cell: (job) => String(job.priority) };
  const enqueued = { label: "Enqueued", cell: (job) => formatTime(job.created_at) };
  const until = (text) => age(Math.max(0, Date.parse(text) - Date.now()));
  if (state === "dead")
    return [
      id,
      attempts,
      { label: "Last failed", cell: (job) => formatTime(job.failures?.at(-1)?.time) },
      { label: "Last error", cell: (job) => (job.failures?.at(-1)?.error ?? "–").split("\n", 1)[0] },
    ];
  if (state === "scheduled")
    return [
      id,
      priority,
      attempts,
      {
        label: "Ready at",
        cell: (job) => `${formatTime(job.deliver_after)} (in ${until(job.deliver_after)})`,
      },
    ];
  if (state === "leased")
    return [
      id,
      attempts,
      enqueued,
      {
        label: "Lease ends",
        cell: (job) =>
          job.lease_expires_at ? `in ${until(job.lease_expires_at)}` : "held by an AMQP consumer",
      },
    ];
  return [id, priority, attempts, enqueued];
}

function actionColumn(place, isDead, reload) {
  return {
    label: "",
    cell: (job) =>
      h(
        "div",
        { class: "row end" },
        button("Show", () => openJob(place, job.id, reload), "small"),
        isDead && button("Redrive", () => redrive(place, [job.id], reload), "small"),
        isDead && button("Delete", () => remove(place, [job.id], reload), "small danger"),
      ),
  };
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
