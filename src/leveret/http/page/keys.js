/** Keys that work everywhere, and the dialog that lists them. */

import { h } from "./dom.js";
import { live } from "./live.js";
import { openDialog } from "./parts/dialog.js";
import { go } from "./router.js";

const PLACES = {
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
const WITHIN_MS = 1500; // from `g` to the letter of the place

let wentAt = -Infinity;

export function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]") || !document.getElementById("main")) return;
    if (performance.now() - wentAt < WITHIN_MS && event.key in PLACES) {
      wentAt = -Infinity;
      event.preventDefault();
      go(PLACES[event.key][0]);
      return;
    }
    const action = {
      "/": focusSearch,
      "?": showKeys,
      p: () => live.pause(!live.isPaused),
      g: () => {
        wentAt = performance.now();
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

export function showKeys() {
  const rows = [
    [["/"], "Search in this view"],
    [["p"], "Pause or resume refreshing"],
    [["↑", "↓", "Home", "End"], "Move between the rows of a table"],
    [["Enter"], "Open the row"],
    [["Space"], "Pick the row"],
    [["Esc"], "Close a dialog"],
    [["?"], "These keys"],
    ...Object.entries(PLACES).map(([key, [, name]]) => [["g", key], `Go to ${name.toLowerCase()}`]),
  ];
  openDialog({
    title: "Keys",
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
