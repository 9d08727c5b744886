/** The elements of a table's rows. */

import { h } from "../dom.js";

/**
 * Make the element of a row.
 * @param {import("./table.js").Table} table
 * @param {any} row
 * @param {number} i its place
 */
export function tableRow(table, row, i) {
  const { key: keyOf, columns, onOpen, onPick, opens } = table.options;
  const key = keyOf(row);
  const isPicked = table.picked.has(key);
  const opener = onOpen && columns[opens ?? 0];
  const onclick = (event) => {
    table.current = i;
    if (!event.target.closest("a, input, button")) onOpen?.(row);
  };
  return h(
    "tr",
    {
      "data-key": key,
      "data-row": i,
      "aria-rowindex": i + 2,
      class: isPicked ? "picked" : null,
      onclick,
    },
    onPick && pickCell(key, isPicked, () => table.pick(key)),
    table.shownColumns().map((column) => cell(column, row, column === opener ? onOpen : null)),
  );
}

function pickCell(key, isPicked, onchange) {
  const box = { type: "checkbox", checked: isPicked, tabindex: "-1", onchange };
  return h("td", { class: "pick" }, h("input", { ...box, "aria-label": `Select ${key}` }));
}

function cell(column, row, onOpen) {
  const content = column.cell(row);
  const title = typeof content === "string" && content.length > 24 ? content.slice(0, 1000) : null;
  const open = { type: "button", class: "open", onclick: () => onOpen(row) };
  return h(
    "td",
    { class: `${column.number ? "number" : ""} ${column.minor ? "minor" : ""}`, title },
    onOpen ? h("button", open, content) : content,
  );
}

/** Make a row in place of one that is not loaded yet. */
export function missingRow(columns, i) {
  const soft = h("td", { colspan: String(columns), class: "soft" }, "…");
  return h("tr", { "data-key": `\u0000${i}`, "aria-rowindex": i + 2 }, soft);
}

/** Make a row that takes the place of rows that are not visible. */
export function spacer(key, heightPx) {
  return h(
    "tr",
    { class: "spacer", "data-key": `\u0000${key}`, "aria-hidden": "true" },
    h("td", { style: { height: `${heightPx}px` } }),
  );
}
