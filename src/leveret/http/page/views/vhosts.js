/** All virtual hosts. */

import { at, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { chooseVhost } from "../session.js";

export function view({ again }) {
  const vhosts = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({
      title: "Virtual hosts",
      actions: [button("Add a virtual host", () => edit(null, again), "main")],
    }),
    sheet(null, vhosts),
  );

  async function refresh(signal) {
    fill(vhosts, draw(await get("/vhosts", { signal }), again));
  }
  return { title: "Virtual hosts", el, refresh };
}

function draw(vhosts, again) {
  return list(
    [
      {
        label: "Name",
        cell: (v) =>
          button(
            v.name,
            () => {
              chooseVhost(v.name);
              location.hash = "#/queues";
            },
            "small",
          ),
      },
      {
        label: "About",
        cell: (v) => [v.description || h("span", { class: "soft" }, "–"), " ", marks(v)],
      },
      { label: "Default type", cell: (v) => v.default_queue_type ?? "classic" },
      { label: "Ready", number: true, cell: (v) => count(v.messages_ready ?? 0) },
      { label: "In flight", number: true, cell: (v) => count(v.messages_unacknowledged ?? 0) },
      {
        label: "",
        cell: (v) =>
          h(
            "div",
            { class: "row end" },
            button("Change", () => edit(v, again), "small"),
            button("Delete", () => remove(v, again), "small danger"),
          ),
      },
    ],
    vhosts,
    "There are none.",
  );
}

function marks(vhost) {
  return [
    vhost.tracing && badge("traced", "warn"),
    vhost.protected_from_deletion && badge("protected", "good"),
    (vhost.tags ?? []).map((tag) => badge(tag)),
  ];
}

function edit(vhost, again) {
  return formDialog({
    title: vhost ? `Change “${vhost.name}”` : "Add a virtual host",
    verb: vhost ? "Change" : "Add",
    fields: [
      ...(vhost ? [] : [{ name: "name", label: "Name", required: true }]),
      { name: "description", label: "Description", value: vhost?.description },
      {
        name: "type",
        label: "Default queue type",
        type: "select",
        options: ["classic", "quorum", "stream"],
        value: vhost?.default_queue_type ?? "classic",
      },
      { name: "tags", label: "Tags", value: (vhost?.tags ?? []).join(", ") },
      {
        name: "tracing",
        label: "Trace every message to amq.rabbitmq.trace",
        type: "check",
        value: vhost?.tracing,
        whole: true,
      },
    ],
    submit: async (values) => {
      const name = vhost?.name ?? values.name;
      const tags = values.tags
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean)
        .join(",");
      await put(at`/vhosts/${name}`, {
        description: values.description,
        tags,
        default_queue_type: values.type,
        tracing: values.tracing,
      });
      notice(`The virtual host “${name}” is ${vhost ? "changed" : "added"}.`);
      again();
    },
  });
}

async function remove(vhost, again) {
  const isDone = await formDialog({
    title: `Delete “${vhost.name}”?`,
    about:
      "All its queues, exchanges, messages and permissions go with it. Write its name to be sure.",
    verb: "Delete the virtual host",
    danger: true,
    fields: [{ name: "name", label: "Its name", required: true, whole: true }],
    submit: async ({ name }) => {
      if (name !== vhost.name) throw new Error("That is another name.");
      await del(at`/vhosts/${vhost.name}`);
    },
  });
  if (isDone) await attempt(async () => again(), `The virtual host “${vhost.name}” is deleted.`);
}
