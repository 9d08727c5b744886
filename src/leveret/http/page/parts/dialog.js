/**
 * Dialogs, on the browser's own <dialog>: it keeps the focus inside, closes on Esc, and gives the
 * focus back.
 */

import { fill, h } from "../dom.js";
import { Form } from "./form.js";

/**
 * Opens a dialog; resolves when it is closed.
 * @param {{title: string, body: any, footer?: any, wide?: boolean}} what
 * @returns {{el: HTMLDialogElement, closed: Promise<string>, close: (value?: string) => void}}
 */
export function openDialog({ title, body, footer, wide = false }) {
  const id = `dialog-${performance.now()}`;
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { class: wide ? "wide" : null, "aria-labelledby": id })
  );
  const close = (value = "") => dialog.close(value);
  dialog.append(
    h(
      "div",
      { class: "box" },
      h("header", null, h("h2", { id }, title), closeButton(close)),
      body,
      footer,
    ),
  );
  return { el: dialog, closed: show(dialog), close };
}

function closeButton(close) {
  return h(
    "button",
    {
      type: "button",
      class: "quiet small",
      "aria-label": "Close the dialog",
      onclick: () => close(),
    },
    "×",
  );
}

function show(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      dialog.remove();
      resolve(dialog.returnValue);
    };
  });
}

/**
 * Asks before something that cannot be undone.
 * @returns {Promise<boolean>}
 */
export async function confirm({ title, text, verb, danger = true }) {
  const opened = openDialog({
    title,
    body: h("p", null, text),
    footer: h(
      "footer",
      null,
      h("button", { type: "button", onclick: () => opened.close() }, "Cancel"),
      h(
        "button",
        {
          type: "button",
          class: danger ? "main danger" : "main",
          onclick: () => opened.close("yes"),
        },
        verb,
      ),
    ),
  });
  return (await opened.closed) === "yes";
}

/**
 * A form in a dialog. `submit` is given the values; while it throws, the dialog stays open and says
 * why.
 * @param {{title: string, about?: any, fields: import("./form.js").Field[], verb: string,
 *   submit: (values: any) => Promise<any>, danger?: boolean, wide?: boolean}} what
 * @returns {Promise<boolean>} whether it was submitted
 */
export async function formDialog({
  title,
  about,
  fields,
  verb,
  submit,
  danger = false,
  wide = false,
}) {
  const form = new Form(fields);
  const fault = h("div", { role: "alert" });
  const button = h("button", { type: "submit", class: danger ? "main danger" : "main" }, verb);
  const id = `dialog-${performance.now()}`;
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog", { class: wide ? "wide" : null, "aria-labelledby": id })
  );
  const close = (value = "") => dialog.close(value);
  const element = h(
    "form",
    { novalidate: true },
    h("header", null, h("h2", { id }, title), closeButton(close)),
    about && h("div", { class: "soft" }, about),
    form.el,
    fault,
    h("footer", null, h("button", { type: "button", onclick: () => close() }, "Cancel"), button),
  );
  element.onsubmit = async (event) => {
    event.preventDefault();
    fill(fault);
    button.toggleAttribute("disabled", true);
    try {
      await submit(form.values());
      close("yes");
    } catch (found) {
      fill(fault, h("p", { class: "note bad" }, found.message));
    } finally {
      button.toggleAttribute("disabled", false);
    }
  };
  dialog.append(element);
  const closed = show(dialog);
  form.focus();
  return (await closed) === "yes";
}
