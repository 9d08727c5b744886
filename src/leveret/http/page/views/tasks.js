/** Tasks, which move messages once, and shovels and federation links, which keep moving messages. */

import { apiPath, del, get, put, unlessRefused } from "../api.js";
import { fill, h } from "../dom.js";
import { time } from "../format.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { may, vhost, vhostForNew } from "../session.js";
import { drawTask } from "./message_tasks.js";
import { vhostOptions } from "./queues.js";

export function view({ reload }) {
  const tasks = h("div", { class: "stack" });
  const shovels = h("div");
  const links = h("div");
  const add = may("policymaker") && button("Add a shovel", () => addShovel(reload));
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Tasks and shovels" }),
    sheet("Tasks", tasks),
    sheet(null, h("div", { class: "title" }, h("h2", null, "Shovels"), add), shovels),
    sheet("Federation links", links),
  );

  async function refresh(signal) {
    const [found, moving, linked] = await Promise.all([
      get("/tasks", { signal }),
      unlessRefused(get(vhost() ? apiPath`/shovels/${vhost()}` : "/shovels", { signal })),
      unlessRefused(
        get(vhost() ? apiPath`/federation-links/${vhost()}` : "/federation-links", { signal }),
      ),
    ]);
    const newest = [...found].sort((a, b) => b.started_at_ms - a.started_at_ms);
    fill(
      tasks,
      newest.length === 0
        ? h(
            "p",
            { class: "soft" },
            "No tasks. Moving, copying, deleting or redriving messages of a queue starts a task.",
          )
        : newest.map((task) =>
            h(
              "div",
              { "data-key": task.id },
              drawTask(task, reload),
              h(
                "p",
                { class: "soft small-text" },
                `Started ${time(task.started_at_ms)}${task.ended_at_ms ? `, ended ${time(task.ended_at_ms)}` : ""}`,
              ),
            ),
          ),
    );
    fill(shovels, moving ? drawShovels(moving, reload) : notAllowed());
    fill(links, linked ? drawLinks(linked, reload) : notAllowed());
  }
  return { title: "Tasks and shovels", el, refresh };
}

function notAllowed() {
  return h("p", { class: "soft" }, "Only users with the tag “monitoring” can see them.");
}

function drawShovels(shovels, reload) {
  const restart = (s) =>
    attempt(() => del(apiPath`/shovels/vhost/${s.vhost}/${s.name}/restart`), "The shovel restarts.").then(
      reload,
    );
  const remove = async (s) => {
    const isSure = await confirm({
      title: `Delete the shovel “${s.name}”?`,
      text: "It stops at once. Messages that it has not moved stay in the source.",
      verb: "Delete",
    });
    if (isSure)
      await attempt(
        () => del(apiPath`/parameters/shovel/${s.vhost}/${s.name}`),
        "The shovel is deleted.",
      );
    reload();
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
        label: "Source",
        cell: (s) => h("span", { class: "mono" }, s.src_queue ?? s.src_exchange ?? ""),
      },
      {
        label: "Destination",
        cell: (s) =>
          h("span", { class: "mono" }, s.dest_queue ?? s.dest_exchange ?? s.dest_uri ?? ""),
      },
      { label: "Reason", cell: (s) => s.reason ?? "–" },
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
    "No shovels.",
  );
}

function drawLinks(links, reload) {
  const restart = (l) =>
    attempt(
      () => del(apiPath`/federation-links/vhost/${l.vhost}/${l.id}/${l.node}/restart`),
      "The link restarts.",
    ).then(reload);
  return list(
    [
      { label: "Exchange or queue", cell: (l) => h("span", { class: "mono" }, l[l.type]) },
      { label: "Vhost", cell: (l) => l.vhost },
      {
        label: "State",
        cell: (l) =>
          badge(l.status, l.status === "running" ? "good" : l.status === "error" ? "bad" : "warn"),
      },
      { label: "Upstream", cell: (l) => l.upstream },
      { label: "Address", cell: (l) => h("span", { class: "mono" }, l.uri) },
      { label: "Messages", cell: (l) => String(l.messages) },
      { label: "Reason", cell: (l) => l.error ?? "–" },
      {
        label: "",
        cell: (l) =>
          may("policymaker") &&
          h("div", { class: "row end" }, button("Restart", () => restart(l), "small")),
      },
    ],
    links,
    "No federation links. A policy with an upstream makes them.",
  );
}

function addShovel(reload) {
  return formDialog({
    title: "Add a shovel",
    about:
      "A shovel consumes messages from a source and publishes them to a destination.",
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
      { name: "srcUri", label: "Source URI", value: "amqp://", required: true },
      { name: "srcQueue", label: "Source queue", required: true },
      {
        name: "destUri",
        label: "Destination URI",
        value: "amqp://",
        required: true,
        hint: "amqp://user:password@host/vhost, or an HTTP URL.",
      },
      { name: "destQueue", label: "Destination queue" },
      { name: "destExchange", label: "Or destination exchange" },
      { name: "destKey", label: "Routing key" },
      {
        name: "until",
        label: "Runs until",
        type: "select",
        options: [
          ["never", "it is deleted"],
          ["queue-length", "the current messages are moved"],
        ],
      },
      {
        name: "ackMode",
        label: "Acknowledge",
        type: "select",
        options: [
          ["on-confirm", "after the confirm"],
          ["on-publish", "after publishing"],
          ["no-ack", "on delivery"],
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
      await put(apiPath`/parameters/shovel/${v.vhost}/${v.name}`, { value });
      notice(`The shovel “${v.name}” is added.`);
      reload();
    },
  });
}
