/** Tasks that move messages, and shovels that do so for good. */

import { at, del, get, maybe, put } from "../api.js";
import { fill, h } from "../dom.js";
import { time } from "../format.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { may, vhost, vhostForNew } from "../session.js";
import { drawTask } from "./moving.js";
import { vhostOptions } from "./queues.js";

export function view({ again }) {
  const tasks = h("div", { class: "stack" });
  const shovels = h("div");
  const add = may("policymaker") && button("Add a shovel", () => addShovel(again));
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Tasks and shovels" }),
    sheet("Tasks", tasks),
    sheet(null, h("div", { class: "title" }, h("h2", null, "Shovels"), add), shovels),
  );

  async function refresh(signal) {
    const [found, moving] = await Promise.all([
      get("/tasks", { signal }),
      maybe(get(vhost() ? at`/shovels/${vhost()}` : "/shovels", { signal })),
    ]);
    const newest = [...found].sort((a, b) => b.started_at_ms - a.started_at_ms);
    fill(
      tasks,
      newest.length === 0
        ? h(
            "p",
            { class: "soft" },
            "No task runs. Moving, copying, deleting and redriving messages of a queue starts one.",
          )
        : newest.map((task) =>
            h(
              "div",
              { "data-key": task.id },
              drawTask(task, again),
              h(
                "p",
                { class: "soft small-text" },
                `Started ${time(task.started_at_ms)}${task.ended_at_ms ? `, ended ${time(task.ended_at_ms)}` : ""}`,
              ),
            ),
          ),
    );
    fill(shovels, drawShovels(moving ?? [], again));
  }
  return { title: "Tasks and shovels", el, refresh };
}

function drawShovels(shovels, again) {
  const restart = (s) =>
    attempt(() => del(at`/shovels/vhost/${s.vhost}/${s.name}/restart`), "It starts again.").then(
      again,
    );
  const remove = async (s) => {
    const isSure = await confirm({
      title: `Delete the shovel “${s.name}”?`,
      text: "It stops at once; messages that it has not moved stay where they are.",
      verb: "Delete",
    });
    if (isSure)
      await attempt(
        () => del(at`/parameters/shovel/${s.vhost}/${s.name}`),
        "The shovel is deleted.",
      );
    again();
  };
  return list(
    [
      { label: "Name", cell: (s) => s.name },
      { label: "Vhost", cell: (s) => s.vhost },
      {
        label: "State",
        cell: (s) =>
          badge(
            s.state ?? "unknown",
            s.state === "running" ? "good" : s.state === "terminated" ? "bad" : "warn",
          ),
      },
      {
        label: "From",
        cell: (s) => h("span", { class: "mono" }, s.src_queue ?? s.src_exchange ?? ""),
      },
      {
        label: "To",
        cell: (s) =>
          h("span", { class: "mono" }, s.dest_queue ?? s.dest_exchange ?? s.dest_uri ?? ""),
      },
      { label: "Why", cell: (s) => s.reason ?? "–" },
      {
        label: "",
        cell: (s) =>
          h(
            "div",
            { class: "row end" },
            button("Restart", () => restart(s), "small"),
            button("Delete", () => remove(s), "small danger"),
          ),
      },
    ],
    shovels,
    "There are no shovels.",
  );
}

function addShovel(again) {
  return formDialog({
    title: "Add a shovel",
    about:
      "It takes messages from one place and publishes them at another, for as long as it exists.",
    verb: "Add",
    wide: true,
    fields: [
      { name: "name", label: "Name", required: true },
      {
        name: "vhost",
        label: "Virtual host",
        type: "select",
        options: vhostOptions(),
        value: vhostForNew(),
      },
      { name: "srcUri", label: "From, as a URI", value: "amqp://", required: true },
      { name: "srcQueue", label: "From queue", required: true },
      {
        name: "destUri",
        label: "To, as a URI",
        value: "amqp://",
        required: true,
        hint: "amqp://user:password@host/vhost, or an http address.",
      },
      { name: "destQueue", label: "To queue" },
      { name: "destExchange", label: "Or to exchange" },
      { name: "destKey", label: "With routing key" },
      {
        name: "until",
        label: "Until",
        type: "select",
        options: [
          ["never", "it is deleted"],
          ["queue-length", "what is there now has moved"],
        ],
      },
      {
        name: "ackMode",
        label: "Acknowledge",
        type: "select",
        options: [
          ["on-confirm", "after the confirm"],
          ["on-publish", "after publishing"],
          ["no-ack", "at once"],
        ],
      },
    ],
    submit: async (v) => {
      const value = {
        "src-uri": v.srcUri,
        "src-queue": v.srcQueue,
        "dest-uri": v.destUri,
        "ack-mode": v.ackMode,
        "src-delete-after": v.until,
      };
      if (v.destExchange)
        Object.assign(value, { "dest-exchange": v.destExchange, "dest-exchange-key": v.destKey });
      else if (v.destQueue) value["dest-queue"] = v.destQueue;
      await put(at`/parameters/shovel/${v.vhost}/${v.name}`, { value });
      notice(`The shovel “${v.name}” is added.`);
      again();
    },
  });
}
