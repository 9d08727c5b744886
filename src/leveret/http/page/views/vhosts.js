/** All virtual hosts. */

import { apiPath, del, get, put, unlessRefused } from "../api.js";
import { fill, h } from "../dom.js";
import { count, pluralize } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";

export function view({ reload }) {
  const vhosts = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({
      title: "Virtual hosts",
      actions: [button("Add a virtual host", () => edit(null, reload), "main")],
    }),
    sheet(null, vhosts),
  );

  async function refresh(signal) {
    fill(vhosts, draw(await get("/vhosts", { signal }), reload));
  }
  return { title: "Virtual hosts", el, refresh };
}

function draw(vhosts, reload) {
  return list(
    [
      {
        label: "Name",
        cell: (v) =>
          h("a", { href: `#/queues?vhost=${encodeURIComponent(v.name)}`, title: "Show its queues" }, v.name),
      },
      {
        label: "Description",
        cell: (v) => [v.description || h("span", { class: "soft" }, "–"), " ", marks(v)],
      },
      { label: "Default queue type", cell: (v) => v.default_queue_type ?? "classic" },
      { label: "Ready", number: true, cell: (v) => count(v.messages_ready) },
      { label: "In flight", number: true, cell: (v) => count(v.messages_unacknowledged) },
      {
        label: "",
        cell: (v) =>
          h(
            "div",
            { class: "row end" },
            button("Change", () => edit(v, reload), "small"),
            button("Delete", () => remove(v, reload), "small danger"),
          ),
      },
    ],
    vhosts,
    "No virtual hosts.",
  );
}

function marks(vhost) {
  return [
    vhost.tracing && badge("traced", "warn"),
    vhost.protected_from_deletion && badge("protected", "good"),
    (vhost.tags ?? []).map((tag) => badge(tag)),
  ];
}

function edit(vhost, reload) {
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
        label: "Copy every message to amq.rabbitmq.trace (firehose)",
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
      await put(apiPath`/vhosts/${name}`, {
        description: values.description,
        tags,
        default_queue_type: values.type,
        tracing: values.tracing,
      });
      notice(`The virtual host “${name}” is ${vhost ? "changed" : "added"}.`);
      reload();
    },
  });
}

async function remove(vhost, reload) {
  const path = `${apiPath`/queues/${vhost.name}`}?page=1&page_size=1&columns=name`;
  const queues = (await unlessRefused(get(path)))?.total_count;
  const isDone = await formDialog({
    title: `Delete “${vhost.name}”?`,
    about: `Its ${pluralize(queues, "queue")} with ${pluralize(vhost.messages, "message")}, its exchanges and permissions will be deleted too. Enter its name to confirm.`,
    verb: "Delete the virtual host",
    danger: true,
    fields: [{ name: "name", label: "Name of the virtual host", required: true, whole: true }],
    submit: async ({ name }) => {
      if (name !== vhost.name) throw new Error("The name does not match.");
      await del(apiPath`/vhosts/${vhost.name}`);
    },
  });
  if (isDone) await attempt(async () => reload(), `The virtual host “${vhost.name}” is deleted.`);
}
