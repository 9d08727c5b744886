/** One user: tags, and permissions in each vhost. */

import { at, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { go } from "../router.js";
import { vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";
import { editUser, tagsOf } from "./users.js";

export function view({ params, again }) {
  const { name } = params;
  let user = { name, tags: [] };
  const sub = h("div", { class: "row" });
  const permissions = h("div");
  const topics = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({
      title: name,
      crumb: h("a", { href: "#/users" }, "Users"),
      sub,
      actions: [
        button("Change", () => editUser(user, again)),
        button("Delete", () => remove(name), "danger"),
      ],
    }),
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Permissions"),
        button("Set", () => setPermission(name, null, again)),
      ),
      permissions,
    ),
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Topic permissions"),
        button("Set", () => setTopic(name, again)),
      ),
      topics,
    ),
  );

  async function refresh(signal) {
    const [found, allowed, onTopics] = await Promise.all([
      get(at`/users/${name}`, { signal }),
      get(at`/users/${name}/permissions`, { signal }),
      get(at`/users/${name}/topic-permissions`, { signal }),
    ]);
    user = found;
    fill(
      sub,
      tagsOf(user).length > 0
        ? tagsOf(user).map((tag) => badge(tag))
        : "no tags: may use AMQP, not this page",
    );
    fill(permissions, drawPermissions(allowed, name, again));
    fill(topics, drawTopics(onTopics, name, again));
  }
  return { title: name, el, refresh };
}

function drawPermissions(permissions, name, again) {
  const clear = (p) =>
    attempt(() => del(at`/permissions/${p.vhost}/${name}`), "Cleared.").then(again);
  return list(
    [
      { label: "Vhost", cell: (p) => p.vhost },
      ...["configure", "write", "read"].map((key) => ({
        label: key[0].toUpperCase() + key.slice(1),
        cell: (p) => pattern(p[key]),
      })),
      {
        label: "",
        cell: (p) =>
          h(
            "div",
            { class: "row end" },
            button("Change", () => setPermission(name, p, again), "small"),
            button("Clear", () => clear(p), "small danger"),
          ),
      },
    ],
    permissions,
    "None: this user can open no vhost.",
  );
}

function pattern(text) {
  return text === "" ? h("span", { class: "soft" }, "nothing") : h("span", { class: "mono" }, text);
}

function drawTopics(permissions, name, again) {
  const clear = (p) =>
    attempt(() => del(at`/topic-permissions/${p.vhost}/${name}/${p.exchange}`), "Cleared.").then(
      again,
    );
  return list(
    [
      { label: "Vhost", cell: (p) => p.vhost },
      { label: "Exchange", cell: (p) => p.exchange },
      { label: "Write", cell: (p) => pattern(p.write) },
      { label: "Read", cell: (p) => pattern(p.read) },
      { label: "", cell: (p) => button("Clear", () => clear(p), "small danger") },
    ],
    permissions,
    "None: routing keys are not restricted.",
  );
}

function setPermission(name, permission, again) {
  return formDialog({
    title: `Permissions of “${name}”`,
    about: "Patterns of names. “.*” is everything, empty is nothing.",
    verb: "Set",
    fields: [
      {
        name: "vhost",
        label: "Virtual host",
        type: "select",
        options: vhostOptions(),
        value: permission?.vhost ?? vhostForNew(),
        whole: true,
      },
      { name: "configure", label: "Configure", value: permission?.configure ?? ".*" },
      { name: "write", label: "Write", value: permission?.write ?? ".*" },
      { name: "read", label: "Read", value: permission?.read ?? ".*" },
    ],
    submit: async ({ vhost, ...body }) => {
      await put(at`/permissions/${vhost}/${name}`, body);
      notice("The permissions are set.");
      again();
    },
  });
}

function setTopic(name, again) {
  return formDialog({
    title: `Topic permissions of “${name}”`,
    about: "Patterns of routing keys for one topic exchange.",
    verb: "Set",
    fields: [
      {
        name: "vhost",
        label: "Virtual host",
        type: "select",
        options: vhostOptions(),
        value: vhostForNew(),
      },
      { name: "exchange", label: "Exchange", value: "amq.topic", required: true },
      { name: "write", label: "Write", value: ".*" },
      { name: "read", label: "Read", value: ".*" },
    ],
    submit: async ({ vhost, ...body }) => {
      await put(at`/topic-permissions/${vhost}/${name}`, body);
      notice("The topic permissions are set.");
      again();
    },
  });
}

async function remove(name) {
  const isSure = await confirm({
    title: `Delete the user “${name}”?`,
    text: "Its connections are closed, and its permissions go with it.",
    verb: "Delete",
  });
  if (isSure && (await attempt(() => del(at`/users/${name}`), "The user is deleted.")))
    go("#/users");
}
