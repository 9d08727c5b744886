/**
 * The state of the shown view, as `data-state` of its main element and as a sentence under its
 * heading:
 *
 *   loading   no answer yet. The content is hidden, because it would look like an empty broker.
 *   failed    the first call failed. The content is hidden; a button tries again.
 *   ready     the content shows the last answer. Only in this state "no queues" is true.
 *   stale     a later call failed or takes long. The content stays, with the time of its data.
 */

import { fill, h } from "./dom.js";
import { time } from "./format.js";
import { button } from "./parts/elements.js";

export class ViewState {
  /**
   * @param {HTMLElement} main
   * @param {HTMLElement} el the element of the view
   * @param {() => void} retry
   */
  constructor(main, el, retry) {
    this.main = main;
    this.retry = retry;
    this.loadedAt = 0; // ms since 1970 of the last answer
    this.waiting = h("div", { class: "state", role: "status" });
    this.fault = h("div", { class: "state", role: "alert" });
    const head = el.querySelector(".head");
    if (head) head.after(this.waiting, this.fault);
    else el.prepend(this.waiting, this.fault);
    this.set("loading");
    fill(this.waiting, h("p", { class: "soft" }, "Loading …"));
  }

  /** The broker has not answered for a while. */
  onSlow() {
    if (this.loadedAt) this.set("stale");
    const text = this.loadedAt
      ? `Outdated: this is the data of ${time(this.loadedAt)}. The broker is slow to answer.`
      : "Still loading. The broker is slow to answer.";
    fill(this.waiting, h("p", { class: this.loadedAt ? "note warn" : "soft" }, text));
  }

  /** @param {Error|null} fault of the last call */
  onResult(fault) {
    if (fault && !("status" in fault)) console.error(fault);
    fill(this.waiting);
    if (!fault) {
      this.loadedAt = Date.now();
      this.set("ready");
      fill(this.fault);
      return;
    }
    const reason = "status" in fault ? fault.message : "See the browser's console.";
    this.set(this.loadedAt ? "stale" : "failed");
    fill(
      this.fault,
      h(
        "div",
        { class: `note row ${this.loadedAt ? "warn" : "bad"}` },
        h("p", { class: "grow" }, this.opening(), " ", reason),
        button("Try again", this.retry, "small"),
      ),
    );
  }

  opening() {
    return this.loadedAt
      ? `Outdated: this is the data of ${time(this.loadedAt)}.`
      : "This view could not be loaded.";
  }

  /** @param {"loading"|"failed"|"ready"|"stale"} state */
  set(state) {
    this.main.dataset.state = state;
    this.main.setAttribute("aria-busy", String(state === "loading"));
  }
}
