/**
 * Move, copy, delete and redrive messages: a form, a dry run that shows what would happen, and then
 * the task with its progress.
 */

import { ApiError, del, get, post } from "../api.js";
import { fill, h } from "../dom.js";
import { count, pluralize, rate } from "../format.js";
import { formDialog, openDialog } from "../parts/dialog.js";
import { badge, button } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { vhostOptions } from "./queues.js";

const POLL_MS = 400;
const VERBS = { move: "Move", copy: "Copy", delete: "Delete", redrive: "Redrive" };
const DONE = {
  move: "moved",
  copy: "copied",
  delete: "deleted",
  redrive: "redriven",
  shovel: "shovelled",
};

/**
 * @param {{kind: string, vhost: string, queue: string, ids: string[]|null, filter: any, what: string,
 *   progress: HTMLElement, onDone: () => void}} move
 */
export async function startTask(move) {
  let body = null;
  await formDialog({
    title: `${VERBS[move.kind]}: ${move.what.toLowerCase()} of “${move.queue}”`,
    about: ABOUT[move.kind],
    verb: "Preview",
    fields: fields(move),
    submit: async (values) => {
      const wanted = taskBody(move, values);
      const plan = await post("/tasks", { ...wanted, dry_run: true });
      body = { wanted, plan };
    },
  });
  if (!body || !(await confirmPlan(move, body.plan))) return;
  await attempt(async () => {
    const task = await post("/tasks", body.wanted);
    showProgress(task, move);
  });
}

const ABOUT = {
  move: "A message is always in exactly one of the two queues, even if the broker is killed.",
  copy: "The messages stay in this queue. Copies are added to the target.",
  delete: "This cannot be undone.",
  redrive:
    "Dead letters return to their original queue, unless you name another one. Their attempts are reset.",
};

function fields({ kind, vhost }) {
  const target = [
    {
      name: "queue",
      label: kind === "redrive" ? "To queue (empty: the original queue)" : "To queue",
    },
    {
      name: "vhost",
      label: "In virtual host",
      type: "select",
      options: vhostOptions(),
      value: vhost,
    },
    { name: "exchange", label: "Or to exchange" },
    { name: "key", label: "With routing key", hint: "Empty: keep the routing keys." },
  ];
  const pace = [
    { name: "limit", label: "Maximum messages", type: "number", hint: "Empty: all." },
    {
      name: "rate",
      label: "Messages per second",
      type: "number",
      hint: "Empty: no limit.",
    },
  ];
  const keep = { name: "keep", label: "Keep the number of attempts", type: "check", whole: true };
  if (kind === "delete") return pace;
  return kind === "redrive" ? [...target, ...pace, keep] : [...target, ...pace];
}

function taskBody(move, values) {
  const body = {
    kind: move.kind,
    vhost: move.vhost,
    queue: move.queue,
    ids: move.ids,
    filter: move.filter,
    to: null,
    limit: values.limit,
    rate: values.rate,
    keep_attempts: values.keep ?? false,
  };
  if (values.exchange)
    body.to = { vhost: values.vhost, exchange: values.exchange, routing_key: values.key || null };
  else if (values.queue) body.to = { vhost: values.vhost, queue: values.queue };
  else if (move.kind === "move" || move.kind === "copy")
    throw new Error("Name a target queue or exchange.");
  return body;
}

async function confirmPlan(move, plan) {
  const verb = VERBS[move.kind];
  const targets = plan.targets ?? [];
  const matched = plan.matched ?? 0;
  const opened = openDialog({
    title: `${verb} ${pluralize(matched, "message")}?`,
    body: h(
      "div",
      { class: "stack", "data-plan": true },
      h(
        "p",
        null,
        matched === 0
          ? "No messages match."
          : `${pluralize(matched, "message")} would be ${DONE[move.kind]}.`,
      ),
      targets.length > 0 &&
        h(
          "ul",
          { class: "stack" },
          targets.map((target) => h("li", null, targetText(target))),
        ),
      skippedText(plan.skipped),
    ),
    footer: h(
      "footer",
      null,
      button("Cancel", () => opened.close()),
      matched > 0 &&
        h(
          "button",
          {
            type: "button",
            class: move.kind === "delete" ? "main danger" : "main",
            autofocus: true,
            onclick: () => opened.close("yes"),
          },
          verb,
        ),
    ),
  });
  return (await opened.closed) === "yes";
}

function targetText(target) {
  const place =
    target.queue !== undefined && target.queue !== null
      ? ["queue ", h("strong", null, target.queue)]
      : target.exchange !== undefined
        ? ["exchange ", h("strong", null, target.exchange || "(default exchange)")]
        : ["unknown target"];
  return [
    target.messages !== undefined && `${count(target.messages)} to `,
    place,
    target.vhost && ` in vhost ${target.vhost}`,
  ];
}

/** Show the progress of a task until it ends. */
async function showProgress(task, move) {
  const host = h("div", { class: "sheet" });
  move.progress.append(host);
  let now = task;
  while (now && now.state === "running") {
    fill(host, drawTask(now));
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!host.isConnected) return;
    now = await newest(now);
  }
  host.remove();
  const text = `${pluralize(now.done ?? 0, "message")} ${DONE[now.kind] ?? "done"}`;
  if (now.state === "failed") notice(`The task failed after ${text}: ${now.error}`, "bad");
  else notice(now.state === "cancelled" ? `Cancelled after ${text}.` : `${text}.`);
  move.onDone();
}

/** Return the newest state of a task. While the broker does not answer, this is the last one. */
async function newest(task) {
  try {
    return await get(`/tasks/${task.id}`);
  } catch (fault) {
    if (fault.status === 404) return { ...task, state: "failed", error: "The task is gone." };
    if (fault instanceof ApiError) return task;
    throw fault;
  }
}

/** Draw a task with its progress. The list of tasks uses it too. */
export function drawTask(task, onCancel) {
  const cancel = () =>
    attempt(async () => {
      await del(`/tasks/${task.id}`);
      onCancel?.();
    }, "The task is cancelled. Messages already handled stay as they are.");
  const kind = { running: "", done: "good", cancelled: "warn", failed: "bad" }[task.state] ?? "";
  const total = task.total ?? 0;
  return h(
    "div",
    { class: "task", "data-task": task.id },
    h(
      "div",
      null,
      h("strong", null, VERBS[task.kind] ?? task.kind),
      " ",
      badge(task.state, kind),
      " ",
      h(
        "span",
        { class: "soft" },
        `${count(task.done ?? 0)}${total ? ` of ${count(total)}` : ""}${task.state === "running" && task.rate ? `, ${rate(task.rate)}` : ""}`,
      ),
      h(
        "div",
        { class: "soft small-text" },
        locationText(task.source),
        task.target && [" → ", locationText(task.target)],
        task.user && ` · ${task.user}`,
      ),
      task.waiting && h("p", { class: "note warn" }, task.waiting),
      task.error && h("p", { class: "note bad" }, task.error),
      skippedText(task.skipped),
    ),
    task.state === "running" && button("Cancel", cancel, "small"),
    h("progress", {
      max: Math.max(total, 1),
      value: task.state === "done" ? Math.max(total, 1) : (task.done ?? 0),
      "aria-label": "Progress",
    }),
  );
}

/** Draw how many messages were skipped, and why. */
function skippedText(skipped) {
  const reasons = Object.entries(skipped ?? {}).filter(([, messages]) => messages > 0);
  if (reasons.length === 0) return null;
  const said = reasons.map(([why, messages]) => `${pluralize(messages, "message")}: ${why}`);
  return h("p", { class: "note warn" }, `Skipped: ${said.join("; ")}.`);
}

function locationText(place) {
  if (!place || typeof place !== "object") return place ?? "";
  const name =
    place.queue ??
    (place.exchange !== undefined ? `exchange ${place.exchange}` : (place.uri ?? ""));
  return place.vhost && place.vhost !== "/" ? `${name} in ${place.vhost}` : name;
}
