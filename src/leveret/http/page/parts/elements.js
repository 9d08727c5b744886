/** Small elements that most views use: headings, facts, figures, short tables, badges, tabs. */

import { h } from "../dom.js";
import { plain } from "../format.js";

/**
 * Make the heading of a view.
 * @param {{title: any, crumb?: any, sub?: any, actions?: any[]}} what
 */
export function head({ title, crumb, sub, actions = [] }) {
  return h(
    "div",
    { class: "head" },
    h(
      "div",
      null,
      crumb && h("div", { class: "crumb" }, crumb),
      h("h1", { tabindex: "-1" }, title),
      sub && h("div", { class: "sub" }, sub),
    ),
    actions.length > 0 && h("div", { class: "row" }, actions),
  );
}

/** Make a section with a heading. */
export function sheet(title, ...content) {
  return h("section", { class: "sheet" }, title && h("h2", null, title), content);
}

export function button(label, onclick, kind = "") {
  return h("button", { type: "button", class: kind || null, onclick }, label);
}

/** Make a list of names and values: [["Node", "rabbit@x"], …]. Pairs without a value are left out. */
export function facts(pairs) {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    given.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

/** Make a list of arguments or properties. */
export function tableFacts(table, empty = "None.") {
  const pairs = Object.entries(table ?? {});
  if (pairs.length === 0) return h("p", { class: "soft" }, empty);
  return facts(pairs.map(([name, value]) => [name, h("span", { class: "mono" }, plain(value))]));
}

/** Make large numbers with names: [["Queues", "12"], …]. */
export function figures(pairs) {
  return h(
    "dl",
    { class: "figures" },
    pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

/**
 * Make a short table with all rows. parts/table.js is for many rows.
 * @param {{label: string, cell: (row: any) => any, number?: boolean}[]} columns a column without a
 *   label holds buttons
 */
export function list(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "soft" }, empty);
  return h(
    "div",
    { class: "list", tabindex: "0", role: "region", "aria-label": columns[0].label },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((column) =>
            h(
              "th",
              { scope: "col", class: column.number ? "number" : null },
              column.label || h("span", { class: "hidden" }, "Actions"),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            columns.map((column) => cell(column, row)),
          ),
        ),
      ),
    ),
  );
}

function cell(column, row) {
  const name = column.label ? (column.number ? "number" : null) : "act";
  return h(
    "td",
    { class: name, "data-label": column.label || null },
    h("div", null, column.cell(row)),
  );
}

/** Make the tabs of a view: [["messages", "Messages", address], …]. */
export function tabs(label, chosen, entries) {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    entries.map(([key, text, href]) =>
      h("a", { href, "aria-current": key === chosen ? "page" : null }, text),
    ),
  );
}

/** Make the content of an empty table. */
export function empty(text, ...actions) {
  return [h("p", null, text), actions];
}
