/** Which columns of a table the user wants to see. The browser keeps the choice (localStorage). */

import { h } from "../dom.js";
import { openDialog } from "./dialog.js";
import { button } from "./elements.js";

const KEPT = "leveret.columns.";

/**
 * Return the labels of the columns to show. The first column is always shown.
 * @param {string} table label of the table
 * @param {import("./table.js").Column[]} columns
 * @returns {Set<string>}
 */
export function chosenColumns(table, columns) {
  const kept = load(table);
  const isShown = (column) => kept?.[column.label] ?? !column.extra;
  return new Set(columns.filter((c, i) => i === 0 || isShown(c)).map((c) => c.label));
}

function load(table) {
  try {
    return JSON.parse(localStorage.getItem(KEPT + table) ?? "null");
  } catch {
    return null; // storage is forbidden, or another program has changed the entry
  }
}

function keep(table, columns, shown) {
  const choice = Object.fromEntries(columns.map((c) => [c.label, shown.has(c.label)]));
  try {
    localStorage.setItem(KEPT + table, JSON.stringify(choice));
  } catch {
    // Storage is forbidden: the choice lasts until the view is left.
  }
}

/** Make the button that lets the user choose the columns of a table. */
export function columnButton(table, onChange) {
  const { label, columns } = table.options;
  const toggle = (column) => {
    if (!table.chosen.delete(column.label)) table.chosen.add(column.label);
    keep(label, columns, table.chosen);
    table.drawColumns();
    onChange();
  };
  const open = () =>
    openDialog({
      title: "Columns",
      body: h(
        "div",
        { class: "stack" },
        columns.slice(1).map((column) =>
          h(
            "label",
            { class: "check" },
            h("input", {
              type: "checkbox",
              checked: table.chosen.has(column.label),
              onchange: () => toggle(column),
            }),
            h("span", null, column.about ? `${column.label}: ${column.about}` : column.label),
          ),
        ),
      ),
    });
  return button("Columns", open, "small minor"); // phones show the main columns only
}
