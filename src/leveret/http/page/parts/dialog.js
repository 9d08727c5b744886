/**
 * Dialogs, based on the browser's <dialog>. It keeps the focus inside, closes on Esc, and restores
 * the focus.
 */

import { fill, h } from "../dom.js";
import { Form } from "./form.js";

/**
 * Open a dialog. `closed` resolves when it is closed.
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
 * Ask for confirmation.
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
 * Show a form in a dialog. `submit` gets the values. If it throws, the dialog stays open and shows
 * the error.
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
