/** One job: its state, payload and failures, and the actions for its state. */

import { queryString } from "../api.js";
import { h } from "../dom.js";
import { count, time } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { confirm, formDialog, openDialog } from "../parts/dialog.js";
import { badge, button, facts } from "../parts/elements.js";
import { attempt } from "../parts/notice.js";
import { payloadText } from "./job_payload.js";

/** Ask for an id, and show that job. */
export async function findJob(place, reload) {
  let found = null;
  await formDialog({
    title: "Find a job",
    verb: "Find",
    fields: [{ name: "id", label: "Id", required: true }],
    submit: async ({ id }) => {
      found = await loadJob(place, id);
    },
  });
  if (found) showJob(place, found, reload);
}

/** Load a job of a list, which has no payloads, and show it. */
export async function openJob(place, id, reload) {
  let found = null;
  await attempt(async () => {
    found = await loadJob(place, id);
  });
  if (found) showJob(place, found, reload);
  else reload();
}

function loadJob(place, id) {
  return jobsCall("GET", `/job${queryString({ ...place, id })}`);
}

function showJob(place, job, reload) {
  const act = async (path, done) => {
    opened.close();
    await attempt(() => jobsCall("POST", path, { body: { ...place, id: job.id } }), done);
    reload();
  };
  const cancel = async () => {
    const isSure = await confirm({
      title: `Cancel job ${job.id}?`,
      text: "The job is deleted and will not be done.",
      verb: "Cancel the job",
    });
    if (isSure) await act("/cancel", "The job is cancelled.");
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
        ["Not before", formatTime(job.deliver_after)],
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
        button("Cancel the job", cancel, "danger"),
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

/** Format a time of the jobs API, which is ISO 8601. */
export function formatTime(text) {
  return text ? time(Date.parse(text)) : "–";
}
