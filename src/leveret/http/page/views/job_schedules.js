/** Schedules: they enqueue a job at each time of a cron expression. */

import { apiPath, queryString } from "../api.js";
import { h } from "../dom.js";
import { age, time } from "../format.js";
import { jobsCall } from "../jobs_api.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { badge, button, list } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { link } from "../router.js";
import { base64 } from "./job_payload.js";

/** Load the schedules of some namespaces. */
export async function loadSchedules(namespaces, signal) {
  const load = (namespace) => jobsCall("GET", `/schedules${queryString({ namespace })}`, { signal });
  return (await Promise.all(namespaces.map(load))).flat();
}

export function drawSchedules(schedules, reload) {
  return list(
    [
      { label: "Schedule", cell: (s) => h("span", { class: "mono" }, s.name) },
      {
        label: "Topic",
        cell: (s) => h("a", { href: link("jobs", s.namespace, s.topic) }, s.topic),
      },
      { label: "Namespace", cell: (s) => s.namespace },
      { label: "Cron", cell: (s) => h("span", { class: "mono" }, `${s.cron} (${s.timezone})`) },
      { label: "Next job", cell: nextTime },
      { label: "", cell: (s) => actions(s, reload) },
    ],
    schedules,
    "No schedules.",
  );
}

function nextTime(schedule) {
  if (schedule.is_paused) return badge("paused", "warn");
  if (typeof schedule.next_ms !== "number") return "never";
  return `${time(schedule.next_ms)} (in ${age(Math.max(0, schedule.next_ms - Date.now()))})`;
}

function actions(schedule, reload) {
  return h(
    "div",
    { class: "row end" },
    button(schedule.is_paused ? "Resume" : "Pause", () => pause(schedule, reload), "small"),
    button("Change", () => editSchedule(schedule, reload), "small"),
    button("Delete", () => remove(schedule, reload), "small danger"),
  );
}

async function pause(schedule, reload) {
  const body = { ...schedule, is_paused: !schedule.is_paused };
  const text = body.is_paused ? "is paused" : "is active again";
  await attempt(() => put(body), `The schedule “${schedule.name}” ${text}.`);
  reload();
}

function put(schedule) {
  const body = { ...schedule, next_ms: null };
  return jobsCall("PUT", apiPath`/schedules/${schedule.namespace}/${schedule.name}`, { body });
}

async function remove(schedule, reload) {
  const isSure = await confirm({
    title: `Delete the schedule “${schedule.name}”?`,
    text: "It enqueues no more jobs. Jobs that it has enqueued stay.",
    verb: "Delete",
  });
  if (!isSure) return;
  const path = apiPath`/schedules/${schedule.namespace}/${schedule.name}`;
  await attempt(() => jobsCall("DELETE", path), `The schedule “${schedule.name}” is deleted.`);
  reload();
}

/** Show a form to add a schedule, or to change one. */
export async function editSchedule(schedule, reload) {
  const isNew = !schedule.name;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const isDone = await formDialog({
    title: isNew ? "Add a schedule" : `Change “${schedule.name}”`,
    verb: isNew ? "Add" : "Change",
    fields: [
      ...(isNew
        ? [
            { name: "name", label: "Name", required: true },
            { name: "namespace", label: "Namespace", required: true, value: schedule.namespace || "default" },
          ]
        : []),
      { name: "topic", label: "Topic", required: true, value: schedule.topic },
      { name: "cron", label: "Cron", required: true, value: schedule.cron, hint: "Minute, hour, day, month, weekday: 30 9 * * 1-5 is 9:30 on weekdays." },
      { name: "timezone", label: "Time zone", required: true, value: schedule.timezone ?? "UTC", options: ["UTC", zone] },
      { name: "priority", label: "Priority", type: "number", value: schedule.priority ?? 0, hint: "Lower is more urgent." },
      ...(isNew ? [{ name: "payload", label: "Payload", type: "area" }] : []),
    ],
    submit: async (values) => {
      const payload = isNew ? { payload: base64(values.payload) } : {};
      await put({ ...schedule, ...values, priority: values.priority ?? 0, ...payload });
      notice(`The schedule “${values.name ?? schedule.name}” is saved.`);
    },
  });
  if (isDone) reload();
}
