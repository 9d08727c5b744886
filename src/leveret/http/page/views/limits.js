/** Limits of virtual hosts and of users. */

import { at, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { button, head, list, sheet } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";

/** Of what, under which path, and which limits there are. */
const KINDS = {
  vhost: {
    path: "vhost-limits",
    key: "vhost",
    label: "Virtual host",
    limits: [
      ["max-connections", "connections"],
      ["max-queues", "queues"],
    ],
  },
  user: {
    path: "user-limits",
    key: "user",
    label: "User",
    limits: [
      ["max-connections", "connections"],
      ["max-channels", "channels"],
    ],
  },
};

export function view({ again }) {
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
          button("Set", () => set(KINDS[kind], again)),
        ),
        places[kind],
      ),
    ),
  );

  async function refresh(signal) {
    for (const [kind, { path }] of Object.entries(KINDS)) {
      fill(places[kind], draw(KINDS[kind], await get(`/${path}`, { signal }), again));
    }
  }
  return { title: "Limits", el, refresh };
}

function draw(kind, found, again) {
  const rows = found.flatMap((entry) =>
    Object.entries(entry.value ?? {}).map(([name, value]) => ({
      of: entry[kind.key],
      name,
      value,
    })),
  );
  const clear = (row) =>
    attempt(() => del(`/${kind.path}${at`/${row.of}/${row.name}`}`), "The limit is gone.").then(
      again,
    );
  return list(
    [
      { label: kind.label, cell: (row) => row.of },
      { label: "Limit", cell: (row) => row.name },
      {
        label: "At most",
        number: true,
        cell: (row) => (row.value < 0 ? "no limit" : count(row.value)),
      },
      { label: "", cell: (row) => button("Clear", () => clear(row), "small danger") },
    ],
    rows,
    "There are none.",
  );
}

function set(kind, again) {
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
      { name: "name", label: "Of", type: "select", options: kind.limits },
      {
        name: "value",
        label: "At most",
        type: "number",
        required: true,
        hint: "-1: no limit; 0: none.",
      },
    ],
    submit: async ({ of, name, value }) => {
      await put(`/${kind.path}${at`/${of}/${name}`}`, { value });
      notice("The limit is set.");
      again();
    },
  });
}
