/** All users. */

import { apiPath, get, put } from "../api.js";
import { h } from "../dom.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];

export function view({ reload }) {
  const table = new Table({
    label: "Users",
    key: (user) => user.name,
    sortBy: 0,
    empty: empty("No users."),
    columns: [
      {
        label: "Name",
        sort: (u) => u.name,
        cell: (u) => h("a", { href: link("users", u.name) }, u.name),
      },
      {
        label: "Tags",
        sort: (u) => tagsOf(u).join(),
        cell: (u) => tagsOf(u).map((tag) => badge(tag)),
        narrow: "8.75rem",
      },
      {
        label: "Virtual hosts",
        sort: (u) => u.vhosts.join(),
        cell: (u) => u.vhosts.join(", ") || h("span", { class: "soft" }, "none"),
      },
      {
        label: "Password",
        cell: (u) => (u.password_hash ? "set" : "none"),
        width: "7rem",
        minor: true,
      },
    ],
  });
  const search = searchOver(table, { label: "Search users", text: (u) => u.name });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Users", actions: [button("Add a user", () => editUser(null, reload), "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    const [users, permissions] = await Promise.all([
      get("/users", { signal }),
      get("/permissions", { signal }),
    ]);
    const vhosts = Map.groupBy(permissions, (permission) => permission.user);
    table.setRows(
      users.map((u) => ({ ...u, vhosts: (vhosts.get(u.name) ?? []).map((p) => p.vhost).sort() })),
    );
    search.say();
  }
  return { title: "Users", el, refresh };
}

export function tagsOf(user) {
  return Array.isArray(user.tags)
    ? user.tags
    : String(user.tags ?? "")
        .split(",")
        .filter(Boolean);
}

/** Show a form to add or change a user. */
export function editUser(user, reload) {
  return formDialog({
    title: user ? `Change “${user.name}”` : "Add a user",
    verb: user ? "Change" : "Add",
    fields: [
      ...(user ? [] : [{ name: "name", label: "Name", required: true }]),
      {
        name: "password",
        label: "Password",
        type: "password",
        autocomplete: "new-password",
        required: !user,
        hint: user ? "Empty: keep the password." : "",
      },
      {
        name: "tags",
        label: "Tags",
        options: TAGS,
        value: user ? tagsOf(user).join(", ") : "",
        hint: `Separated by commas: ${TAGS.join(", ")}.`,
      },
    ],
    submit: async (values) => {
      const name = user?.name ?? values.name;
      const body = {
        tags: values.tags
          .split(",")
          .map((tag) => tag.trim())
          .filter(Boolean)
          .join(","),
      };
      if (values.password) body.password = values.password;
      else if (user?.password_hash)
        Object.assign(body, {
          password_hash: user.password_hash,
          hashing_algorithm: user.hashing_algorithm,
        });
      await put(apiPath`/users/${name}`, body);
      notice(`The user “${name}” is ${user ? "changed" : "added"}.`);
      reload();
    },
  });
}
