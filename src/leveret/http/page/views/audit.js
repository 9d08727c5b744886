/** The audit log: who did what, and whether it was allowed. */

import { get } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { badge, empty, head } from "../parts/list.js";
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
    columns: [
      { label: "When", sort: (e) => e.time_ms, cell: (e) => time(e.time_ms), width: "13rem" },
      { label: "Who", sort: (e) => e.user ?? "", cell: (e) => e.user ?? "–", width: "9rem" },
      {
        label: "From",
        sort: (e) => e.peer ?? "",
        cell: (e) => e.peer ?? "–",
        width: "10rem",
        minor: true,
      },
      { label: "Did", sort: (e) => e.action, cell: (e) => e.action },
      { label: "To", sort: (e) => e.target ?? "", cell: (e) => e.target ?? "–", minor: true },
      {
        label: "Result",
        sort: (e) => e.result ?? "",
        cell: (e) => badge(e.result ?? "–", e.result === "ok" ? "good" : "warn"),
        width: "8rem",
        minor: true,
      },
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
