/** Short messages in the corner. Screen readers read them. Errors stay until they are closed. */

import { h } from "../dom.js";

const SHOWN_MS = 6000;

/** @param {string} text @param {"good"|"bad"} [kind] */
export function notice(text, kind = "good") {
  const element = h(
    "div",
    { class: `notice ${kind}` },
    h("p", null, text),
    h(
      "button",
      {
        class: "quiet small",
        type: "button",
        "aria-label": "Close this message",
        onclick: () => element.remove(),
      },
      "×",
    ),
  );
  const host = document.getElementById("notices");
  host.append(element);
  while (host.children.length > 4) host.firstChild.remove();
  if (kind === "good") setTimeout(() => element.remove(), SHOWN_MS);
}

/**
 * Do something and show a notice of success or failure. Never throws.
 * @param {() => Promise<any>} work
 * @param {string} [done] text of the notice after success
 * @returns {Promise<boolean>} whether it succeeded
 */
export async function attempt(work, done) {
  try {
    await work();
    if (done) notice(done);
    return true;
  } catch (fault) {
    notice(fault.message, "bad");
    return false;
  }
}
