/** The sign-in form. */

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { Form } from "../parts/form.js";
import { basic, remember } from "../session.js";

/**
 * @param {string} reason why the user has to sign in, or empty
 * @param {() => void} onDone
 */
export function loginView(reason, onDone) {
  const form = new Form([
    { name: "user", label: "Name", required: true, whole: true, autocomplete: "username" },
    {
      name: "password",
      label: "Password",
      type: "password",
      whole: true,
      autocomplete: "current-password",
    },
  ]);
  const fault = h("div", { role: "alert" }, reason && h("p", { class: "note bad" }, reason));
  const element = h(
    "form",
    { class: "stack sheet", novalidate: true },
    form.el,
    fault,
    h("button", { class: "main", type: "submit" }, "Sign in"),
  );
  element.onsubmit = async (event) => {
    event.preventDefault();
    try {
      const { user, password } = form.values();
      const login = basic(user, password);
      remember(login, await get("/whoami", { login }));
      onDone();
    } catch (found) {
      fill(fault, h("p", { class: "note bad" }, found.message));
    }
  };
  return h(
    "main",
    { class: "login", id: "main", tabindex: "-1" },
    h(
      "div",
      { class: "mark" },
      h("img", { src: "page/icon.svg", alt: "" }),
      h("h1", null, "Leveret"),
      h("p", { class: "soft" }, "Sign in to this broker"),
    ),
    element,
    h("p", null, h("a", { href: "#/manual/docs/index.md" }, "Documents")),
  );
}
