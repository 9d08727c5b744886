/** Limits of virtual hosts and users. */

import { apiPath, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { button, head, list, sheet } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";

/** The kinds of limits: API path, key field, label, and limit names. */
const KINDS = {
  vhost: {
    path: "vhost-limits",
    key: "vhost",
    label: "Virtual host",
    limits: [
      ["max-connections", "maximum connections"],
      ["max-queues", "maximum queues"],
    ],
  },
  user: {
    path: "user-limits",
    key: "user",
    label: "User",
    limits: [
      ["max-connections", "maximum connections"],
      ["max-channels", "maximum channels"],
    ],
  },
};

export function view({ reload }) {
  const places = { vhost: h("div"), user: h("div") };
  const title = { vhost: "Limits of virtual hosts", user: "Limits of users" };
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Limits" }),
    Object.keys(KINDS).map((kind) =>
      sheet(
        null,
        h(
          "div",
          { class: "title" },
          h("h2", null, title[kind]),
          button("Set", () => set(KINDS[kind], reload)),
        ),
        places[kind],
      ),
    ),
  );

  async function refresh(signal) {
    for (const [kind, { path }] of Object.entries(KINDS)) {
      fill(places[kind], draw(KINDS[kind], await get(`/${path}`, { signal }), reload));
    }
  }
  return { title: "Limits", el, refresh };
}

function draw(kind, found, reload) {
  const rows = found.flatMap((entry) =>
    Object.entries(entry.value ?? {}).map(([name, value]) => ({
      of: entry[kind.key],
      name,
      value,
    })),
  );
  const clear = async (row) => {
    const isSure = await confirm({
      title: "Remove 1 limit?",
      text: `“${row.of}” has no ${row.name} any more.`,
      verb: "Remove",
    });
    if (!isSure) return;
    const path = `/${kind.path}${apiPath`/${row.of}/${row.name}`}`;
    await attempt(() => del(path), "The limit is removed.");
    reload();
  };
  return list(
    [
      { label: kind.label, cell: (row) => row.of },
      { label: "Limit", cell: (row) => row.name },
      {
        label: "Value",
        number: true,
        cell: (row) => (row.value < 0 ? "no limit" : count(row.value)),
      },
      { label: "", cell: (row) => button("Remove", () => clear(row), "small danger") },
    ],
    rows,
    "No limits.",
  );
}

function set(kind, reload) {
  const isVhost = kind.key === "vhost";
  return formDialog({
    title: "Set a limit",
    verb: "Set",
    fields: [
      isVhost
        ? {
            name: "of",
            label: kind.label,
            type: "select",
            options: vhostOptions(),
            value: vhostForNew(),
          }
        : { name: "of", label: kind.label, required: true },
      { name: "name", label: "Limit", type: "select", options: kind.limits },
      {
        name: "value",
        label: "Value",
        type: "number",
        required: true,
        hint: "-1 = no limit.",
      },
    ],
    submit: async ({ of, name, value }) => {
      await put(`/${kind.path}${apiPath`/${of}/${name}`}`, { value });
      notice("The limit is set.");
      reload();
    },
  });
}
