/**
 * A table for many rows. Fifty thousand rows scroll smoothly, because only visible rows are elements.
 *
 * The rows are either all here (`setRows`), and the table sorts and filters them; or the broker sorts
 * and filters, and the table has the rows that are visible (`setPage`, see parts/paged_list.js).
 *
 * All rows have the same height, so that the scroll position tells which rows are visible. Spacers
 * take the place of the others. Keys: arrows, Page Up, Page Down, Home and End move between rows,
 * Enter opens the row, Space selects it if rows can be selected.
 *
 * @typedef {Object} Column
 * @property {string} label
 * @property {(row: any) => any} cell an element or text
 * @property {((row: any) => string|number)|string} [sort] sort key, or its name in the API if the
 *   broker sorts; without it the column is not sortable
 * @property {string} [width] of the column, in CSS
 * @property {string} [narrow] width on narrow screens, if it differs
 * @property {boolean} [number] right-aligned
 * @property {boolean} [minor] hidden on narrow screens
 * @property {boolean} [extra] hidden until the user chooses it
 * @property {string} [about] what the values mean
 */

import { fill, h } from "../dom.js";
import { chosenColumns } from "./column_choice.js";
import { headCell } from "./table_head.js";
import { TableOrder } from "./table_order.js";
import { missingRow, spacer, tableRow } from "./table_row.js";

const ROW_PX = 40;
const MARGIN_ROWS = 6;

export class Table {
  /**
   * @param {{label: string, columns: Column[], key: (row: any) => string, empty: any,
   *   sortBy?: number, descending?: boolean, onPick?: (picked: Set<string>) => void,
   *   onOpen?: (row: any) => void, opens?: number}} options `onPick` makes rows selectable, `onOpen` makes
   *   a button of the column `opens` (the first, if not given)
   */
  constructor(options) {
    this.options = options;
    this.rows = [];
    this.isLoaded = false; // no rows yet is not the same as no rows
    this.shown = []; // rows in order; of a paged table only some are here
    this.total = 0; // rows before the search
    this.filter = null;
    this.chosen = chosenColumns(options.label, options.columns);
    this.order = new TableOrder(options);
    this.current = 0;
    /** @type {Set<string>} */
    this.picked = new Set();
    /** @type {Map<any, Element>} elements of the visible rows */
    this.drawn = new Map();
    this.head = h("thead");
    this.body = h("tbody");
    this.cols = h("colgroup");
    this.table = h("table", { "aria-label": options.label }, this.cols, this.head, this.body);
    this.empty = h("div", { class: "empty" });
    this.el = h(
      "div",
      { class: "rows", tabindex: "0", role: "region", "aria-label": options.label },
      this.table,
      this.empty,
    );
    this.startRow = 0; // the first row to show, once the table is visible
    this.onMove = () => {}; // called after sorting and scrolling
    this.onSort = () => this.arrange();
    this.el.onscroll = () => {
      this.draw();
      this.onMove();
    };
    this.el.onkeydown = (event) => this.onKey(event);
    // Space selects the row. Without this it would also press the row's button.
    this.el.onkeyup = (event) =>
      event.key === " " && options.onPick && this.isOnRow(event) && event.preventDefault();
    new ResizeObserver(() => this.onResize()).observe(this.el);
    this.drawColumns();
  }

  onResize() {
    this.draw();
    if (this.startRow === 0 || !this.isLoaded || this.el.clientHeight === 0) return;
    this.el.scrollTop = this.startRow * ROW_PX;
    this.startRow = 0;
  }

  /** Return the first visible row. */
  topRow() {
    return Math.floor(this.el.scrollTop / ROW_PX);
  }

  /** @param {any[]} rows */
  setRows(rows) {
    this.rows = rows;
    this.total = rows.length;
    this.isLoaded = true;
    const keys = new Set(rows.map(this.options.key));
    const before = this.picked.size;
    for (const key of this.picked) if (!keys.has(key)) this.picked.delete(key);
    if (this.picked.size !== before) this.options.onPick?.(this.picked);
    this.arrange();
  }

  /**
   * Show rows that the broker has sorted and filtered.
   * @param {{first: number, rows: any[], found: number, total: number}} page `first` is the place of
   *   the first row among all that were found
   */
  setPage({ first, rows, found, total }) {
    this.rows = rows;
    this.total = total;
    this.isLoaded = true;
    this.shown = new Array(Math.max(found, first + rows.length));
    rows.forEach((row, i) => (this.shown[first + i] = row));
    this.current = Math.min(this.current, Math.max(this.shown.length - 1, 0));
    this.drawn.clear();
    this.draw();
    if (this.isFocusWanted) this.moveTo(this.current);
  }

  /** Return the first place that is visible, and the place after the last. */
  visibleRange() {
    const room = Math.ceil((this.el.clientHeight || 600) / ROW_PX);
    const first = this.startRow || this.topRow();
    return [Math.max(0, first - MARGIN_ROWS), first + room + MARGIN_ROWS];
  }

  /** Return whether all visible rows are here. */
  hasVisibleRows() {
    const [first, end] = this.visibleRange();
    for (let i = first; i < Math.min(end, this.shown.length); i += 1)
      if (this.shown[i] === undefined) return false;
    return true;
  }

  /** @param {((row: any) => boolean)|null} filter */
  setFilter(filter) {
    this.filter = filter;
    this.el.scrollTop = 0;
    this.arrange();
  }

  arrange() {
    this.drawn.clear(); // their positions and selection may have changed
    const found = this.filter ? this.rows.filter(this.filter) : [...this.rows];
    this.order.sort(found);
    this.shown = found;
    this.current = Math.min(this.current, Math.max(found.length - 1, 0));
    this.draw();
  }

  /** Draw the columns again, after the user has chosen others. */
  drawColumns() {
    fill(
      this.cols,
      this.options.onPick && h("col", { style: { width: "2.75rem" } }),
      this.shownColumns().map((column) =>
        h("col", {
          class: column.minor ? "minor" : null,
          style: widths(column),
        }),
      ),
    );
    this.drawHead();
    this.drawn.clear();
    this.draw();
  }

  shownColumns() {
    return this.options.columns.filter((column) => this.chosen.has(column.label));
  }

  drawHead() {
    const { columns } = this.options;
    const cells = this.shownColumns().map((column) => {
      const i = columns.indexOf(column);
      return headCell(column, this.order.by === i ? this.order : null, () => this.sort(i));
    });
    const all = h("input", {
      type: "checkbox",
      "aria-label": "Select all rows",
      onchange: (event) => this.pickAll(event.target.checked),
    });
    fill(this.head, h("tr", null, this.options.onPick && h("th", { class: "pick" }, all), cells));
  }

  sort(i) {
    this.order.choose(i);
    this.drawHead();
    this.onSort();
    this.onMove();
  }

  draw() {
    const { shown } = this;
    this.table.setAttribute("aria-rowcount", String(shown.length + 1));
    this.table.hidden = shown.length === 0;
    fill(this.empty, shown.length === 0 && this.emptyText());
    this.empty.hidden = shown.length > 0;
    const room = Math.ceil((this.el.clientHeight || 600) / ROW_PX);
    const top = Math.floor(this.el.scrollTop / ROW_PX);
    const first = Math.max(0, Math.min(top, shown.length) - MARGIN_ROWS);
    const end = Math.min(shown.length, top + room + MARGIN_ROWS);
    const rows = [];
    for (let i = first; i < end; i += 1) rows.push(this.drawnRow(i));
    fill(this.body, spacer("before", first * ROW_PX), rows, spacer("after", (shown.length - end) * ROW_PX));
    // Keep the elements of rows that stay visible while scrolling.
    const elements = [...this.body.children].slice(1, -1);
    this.drawn = new Map(elements.map((element, i) => [shown[first + i], element]));
    this.drawn.delete(undefined);
  }

  drawnRow(i) {
    const row = this.shown[i];
    if (row === undefined) return missingRow(this.shownColumns().length, i);
    return this.drawn.get(row) ?? tableRow(this, row, i);
  }

  emptyText() {
    if (!this.isLoaded) return null;
    if (this.total > 0) return h("p", null, "No matches.");
    return this.options.empty;
  }

  pick(key) {
    if (!this.picked.delete(key)) this.picked.add(key);
    this.options.onPick(this.picked);
    this.drawn.clear();
    this.draw();
  }

  pickAll(isPicked) {
    this.picked = new Set(isPicked ? this.shown.map(this.options.key) : []);
    this.options.onPick(this.picked);
    this.drawn.clear();
    this.draw();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.shown.length === 0) return;
    const page = Math.max(1, Math.floor(this.el.clientHeight / ROW_PX) - 2);
    const last = this.shown.length - 1;
    const steps = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -last,
      End: last,
    };
    if (event.key in steps && !event.target.matches("input[type=text]")) {
      event.preventDefault();
      const isFirst = event.target === this.el && event.key === "ArrowDown" && !this.hasMoved;
      this.hasMoved = true;
      this.moveTo(Math.min(last, Math.max(0, this.current + (isFirst ? 0 : steps[event.key]))));
    } else if (event.key === " " && this.options.onPick && this.isOnRow(event)) {
      event.preventDefault();
      this.pick(this.options.key(this.shown[this.current]));
    }
  }

  isOnRow(event) {
    return event.target === this.el || event.target.matches("button.open, tr a");
  }

  /** Move to a row: scroll it into view and focus its link. */
  moveTo(index) {
    this.current = index;
    const top = index * ROW_PX;
    const room = this.el.clientHeight - this.head.offsetHeight - ROW_PX;
    if (top < this.el.scrollTop) this.el.scrollTop = top;
    else if (top > this.el.scrollTop + room) this.el.scrollTop = top - room;
    this.draw();
    const row = this.body.querySelector(`tr[data-row="${index}"]`);
    this.isFocusWanted = row === null; // it is not loaded yet
    row?.querySelector("a, button.open")?.focus({ preventScroll: true });
  }
}

/** Return the widths of a column for tables.css. */
function widths({ width, narrow }) {
  return { ...(width && { "--width": width }), ...(narrow && { "--narrow": narrow }) };
}
