/** The audit log: who did what, and whether it was allowed. */

import { get } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { openDialog } from "../parts/dialog.js";
import { badge, empty, facts, head } from "../parts/elements.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";

const LIMIT = 1000;

export function view() {
  const table = new Table({
    label: "Audit log",
    key: (entry) => entry.key,
    sortBy: 0,
    descending: true,
    empty: empty("The log is empty."),
    opens: 1,
    onOpen: show,
    columns: [
      { label: "Time", sort: (e) => e.time_ms, cell: (e) => time(e.time_ms), width: "11.5rem" },
      { label: "Action", sort: (e) => e.action, cell: (e) => e.action },
      { label: "Target", sort: (e) => e.target ?? "", cell: (e) => e.target ?? "–", minor: true },
      {
        label: "User",
        sort: (e) => e.user ?? "",
        cell: (e) => e.user ?? "–",
        width: "9rem",
        minor: true,
      },
      {
        label: "Address",
        sort: (e) => e.peer ?? "",
        cell: (e) => e.peer ?? "–",
        width: "9rem",
        minor: true,
      },
      { label: "Result", sort: (e) => e.result ?? "", cell: result, width: "8rem", minor: true },
    ],
  });
  const search = searchOver(table, {
    label: "Search the log",
    text: (e) => `${e.user} ${e.peer} ${e.action} ${e.target} ${e.result}`,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Audit log", sub: "Who did what, newest first" }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    const found = await get(`/audit?limit=${LIMIT}`, { signal });
    table.setRows(
      found.map((entry, i) => ({ ...entry, key: `${entry.time_ms} ${found.length - i}` })),
    );
    search.say();
  }
  return { title: "Audit log", el, refresh };
}

function result(entry) {
  return badge(entry.result ?? "–", entry.result === "ok" ? "good" : "warn");
}

function show(entry) {
  openDialog({
    title: entry.action,
    body: facts([
      ["Time", time(entry.time_ms)],
      ["User", entry.user],
      ["Address", entry.peer],
      ["Target", entry.target],
      ["Result", result(entry)],
    ]),
  });
}
