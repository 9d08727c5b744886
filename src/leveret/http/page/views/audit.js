/** The audit log: who did what, and whether it was allowed. */

import { get } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { openDialog } from "../parts/dialog.js";
import { badge, empty, facts, head } from "../parts/list.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";

const LIMIT = 1000;

export function view() {
  const table = new Table({
    label: "Audit log",
    key: (entry) => entry.key,
    sortBy: 0,
    descending: true,
    empty: empty("Nothing has been noted yet."),
    opens: 1,
    onOpen: show,
    columns: [
      { label: "When", sort: (e) => e.time_ms, cell: (e) => time(e.time_ms), width: "11.5rem" },
      { label: "Did", sort: (e) => e.action, cell: (e) => e.action },
      { label: "To", sort: (e) => e.target ?? "", cell: (e) => e.target ?? "–", minor: true },
      {
        label: "Who",
        sort: (e) => e.user ?? "",
        cell: (e) => e.user ?? "–",
        width: "9rem",
        minor: true,
      },
      {
        label: "From",
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
    head({ title: "Audit log", sub: "Who did what; the newest first" }),
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
      ["When", time(entry.time_ms)],
      ["Who", entry.user],
      ["From", entry.peer],
      ["To", entry.target],
      ["Result", result(entry)],
    ]),
  });
}
