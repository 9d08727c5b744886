/** The head of a table's column. */

import { h } from "../dom.js";

/**
 * Return the cell of a column, with a button if the table can be sorted by it.
 * @param {import("./table.js").Column} column
 * @param {{descending: boolean}|null} order of the table, if it is sorted by this column
 * @param {() => void} onSort
 */
export function headCell(column, order, onSort) {
  const names = `${column.number ? "number" : ""} ${column.minor ? "minor" : ""}`;
  const title = column.about ?? null;
  if (!column.sort) return h("th", { class: `plain ${names}`, scope: "col", title }, column.label);
  const sorted = order && (order.descending ? "descending" : "ascending");
  const arrow = h(
    "span",
    { class: "arrow", "aria-hidden": "true" },
    order ? (order.descending ? "↓" : "↑") : "",
  );
  return h(
    "th",
    { class: names, scope: "col", "aria-sort": sorted, title },
    h("button", { type: "button", onclick: onSort }, column.label, arrow),
  );
}
