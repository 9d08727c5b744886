/** One user: tags, and permissions per vhost. */

import { apiPath, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { badge, button, head, list, sheet } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { goTo } from "../router.js";
import { vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";
import { editUser, tagsOf } from "./users.js";

export function view({ params, reload }) {
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
        button("Change", () => editUser(user, reload)),
        button("Delete", () => remove(name), "danger"),
      ],
    }),
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Permissions"),
        button("Set", () => setPermission(name, null, reload)),
      ),
      permissions,
    ),
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Topic permissions"),
        button("Set", () => setTopic(name, reload)),
      ),
      topics,
    ),
  );

  async function refresh(signal) {
    const [found, allowed, onTopics] = await Promise.all([
      get(apiPath`/users/${name}`, { signal }),
      get(apiPath`/users/${name}/permissions`, { signal }),
      get(apiPath`/users/${name}/topic-permissions`, { signal }),
    ]);
    user = found;
    fill(
      sub,
      tagsOf(user).length > 0
        ? tagsOf(user).map((tag) => badge(tag))
        : "no tags (may use AMQP, but not this page)",
    );
    fill(permissions, drawPermissions(allowed, name, reload));
    fill(topics, drawTopics(onTopics, name, reload));
  }
  return { title: name, el, refresh };
}

function drawPermissions(permissions, name, reload) {
  const clear = async (p) => {
    const isSure = await confirm({
      title: `Remove the permissions of “${name}”?`,
      text: `“${name}” can no longer use the vhost “${p.vhost}”.`,
      verb: "Remove",
    });
    if (!isSure) return;
    await attempt(() => del(apiPath`/permissions/${p.vhost}/${name}`), "The permissions are removed.");
    reload();
  };
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
            button("Change", () => setPermission(name, p, reload), "small"),
            button("Remove", () => clear(p), "small danger"),
          ),
      },
    ],
    permissions,
    "No permissions: this user cannot open any vhost.",
  );
}

function pattern(text) {
  return text === "" ? h("span", { class: "soft" }, "nothing") : h("span", { class: "mono" }, text);
}

function drawTopics(permissions, name, reload) {
  const clear = async (p) => {
    const isSure = await confirm({
      title: `Remove 1 topic permission of “${name}”?`,
      text: `All routing keys of “${p.exchange}” are allowed again.`,
      verb: "Remove",
    });
    if (!isSure) return;
    const path = apiPath`/topic-permissions/${p.vhost}/${name}/${p.exchange}`;
    await attempt(() => del(path), "The permissions are removed.");
    reload();
  };
  return list(
    [
      { label: "Vhost", cell: (p) => p.vhost },
      { label: "Exchange", cell: (p) => p.exchange },
      { label: "Write", cell: (p) => pattern(p.write) },
      { label: "Read", cell: (p) => pattern(p.read) },
      { label: "", cell: (p) => button("Remove", () => clear(p), "small danger") },
    ],
    permissions,
    "No topic permissions: routing keys are not restricted.",
  );
}

function setPermission(name, permission, reload) {
  return formDialog({
    title: `Permissions of “${name}”`,
    about: "Regular expressions for names. “.*” allows everything, empty allows nothing.",
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
      await put(apiPath`/permissions/${vhost}/${name}`, body);
      notice("The permissions are set.");
      reload();
    },
  });
}

function setTopic(name, reload) {
  return formDialog({
    title: `Topic permissions of “${name}”`,
    about: "Regular expressions for routing keys of one topic exchange.",
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
      await put(apiPath`/topic-permissions/${vhost}/${name}`, body);
      notice("The topic permissions are set.");
      reload();
    },
  });
}

async function remove(name) {
  const isSure = await confirm({
    title: `Delete the user “${name}”?`,
    text: "Its connections are closed and its permissions are deleted.",
    verb: "Delete",
  });
  if (isSure && (await attempt(() => del(apiPath`/users/${name}`), "The user is deleted.")))
    goTo("#/users");
}
