/** Keyboard shortcuts of all views, and the dialog that lists them. */

import { h } from "./dom.js";
import { live } from "./polling.js";
import { openDialog } from "./parts/dialog.js";
import { goTo } from "./router.js";

const TARGETS = {
  o: ["#/", "Overview"],
  q: ["#/queues", "Queues"],
  s: ["#/streams", "Streams"],
  j: ["#/jobs", "Jobs"],
  e: ["#/exchanges", "Exchanges"],
  c: ["#/connections", "Connections"],
  h: ["#/channels", "Channels"],
  t: ["#/tasks", "Tasks and shovels"],
  m: ["#/trace", "Trace a message"],
  p: ["#/policies", "Policies"],
};
const SEQUENCE_MS = 1500; // between `g` and the letter

let pressedGAt = -Infinity;

export function listenForShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]") || !document.querySelector(".frame")) return;
    if (performance.now() - pressedGAt < SEQUENCE_MS && event.key in TARGETS) {
      pressedGAt = -Infinity;
      event.preventDefault();
      goTo(TARGETS[event.key][0]);
      return;
    }
    const action = {
      "/": focusSearch,
      "?": showShortcuts,
      p: () => live.pause(!live.isPaused),
      g: () => {
        pressedGAt = performance.now();
      },
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function isTyping(target) {
  return (
    target instanceof Element &&
    target.closest("input:not([type=checkbox]), textarea, select") !== null
  );
}

function focusSearch() {
  document.querySelector("[data-search]")?.focus();
}

export function showShortcuts() {
  const rows = [
    [["/"], "Search in this view"],
    [["p"], "Pause or resume refreshing"],
    [["↑", "↓", "Home", "End"], "Move between table rows"],
    [["Enter"], "Open the row"],
    [["Space"], "Select the row"],
    [["Esc"], "Close a dialog"],
    [["?"], "Show these shortcuts"],
    ...Object.entries(TARGETS).map(([key, [, name]]) => [["g", key], `Go to ${name.toLowerCase()}`]),
  ];
  openDialog({
    title: "Keyboard shortcuts",
    body: h(
      "dl",
      { class: "facts" },
      rows.map(([keys, about]) => [
        h(
          "dt",
          null,
          keys.map((key, i) => [i > 0 && " ", h("kbd", null, key)]),
        ),
        h("dd", null, about),
      ]),
    ),
  });
}
