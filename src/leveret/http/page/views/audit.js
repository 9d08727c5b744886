/** The audit log: who did what, and whether it was allowed. */

import { get } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { openDialog } from "../parts/dialog.js";
import { badge, empty, facts, head } from "../parts/elements.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";

const LIMIT = 1000;
const PROTOCOLS = { http: "HTTP", amqp091: "AMQP" };
const STATUSES = {
  401: ["refused", "bad"],
  403: ["refused", "bad"],
  404: ["not found", "warn"],
  409: ["conflict", "warn"],
  412: ["refused", "warn"],
  429: ["too many", "warn"],
};

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
      { label: "Time", sort: (e) => e.time_ms, cell: (e) => shortTime(e.time_ms), width: "11.5rem", narrow: "5.75rem" },
      { label: "What", sort: what, cell: (e) => h("span", { class: "two-lines", title: what(e) }, what(e)) },
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
        width: "10rem",
        minor: true,
      },
      { label: "Result", sort: (e) => e.result ?? "", cell: result, width: "9rem", narrow: "7rem" },
    ],
  });
  const search = searchOver(table, {
    label: "Search the log",
    text: (e) => `${e.user} ${e.peer} ${what(e)} ${e.target} ${e.result}`,
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

/** Return what was done: “login over AMQP”, “PUT users › ann”. */
function what(entry) {
  if (entry.action === "login") return `login over ${PROTOCOLS[entry.target] ?? entry.target}`;
  return [entry.action, readable(entry.target)].filter(Boolean).join(" ");
}

/** Return a path with its names as people write them; a name such as that of a vhost may have a “/”. */
function readable(path) {
  const parts = (path ?? "").replace(/^\/api\//, "/").split("/").filter(Boolean);
  try {
    return parts.map(decodeURIComponent).join(" › ");
  } catch {
    return path;
  }
}

/** Return a time in two parts, of which phones show the second. */
function shortTime(ms) {
  const [day, clock] = time(ms).split(" ");
  return h("time", { title: time(ms) }, h("span", { class: "minor" }, `${day} `), clock);
}

/** Return the result in a word, coloured by its meaning: done, wrong request, refused or failed. */
function result(entry) {
  const text = entry.result ?? "–";
  const status = Number(text);
  if (text === "ok" || (status >= 200 && status < 400)) return badge("done", "good");
  if (!Number.isInteger(status)) return badge("refused", "bad");
  const [word, kind] = STATUSES[status] ?? (status >= 500 ? ["failed", "bad"] : ["invalid", "warn"]);
  return badge(`${word} (${status})`, kind);
}

function show(entry) {
  openDialog({
    title: entry.action,
    body: facts([
      ["Time", time(entry.time_ms)],
      ["User", entry.user],
      ["Address", entry.peer],
      ["Target", readable(entry.target)],
      ["Result", [result(entry), entry.result === "ok" ? "" : ` ${entry.result ?? ""}`]],
    ]),
  });
}
