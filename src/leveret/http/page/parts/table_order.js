/** The order of the rows of a table: by which column, and in which direction. */

export class TableOrder {
  /**
   * @param {{columns: import("./table.js").Column[], key: (row: any) => string, sortBy?: number,
   *   descending?: boolean}} options of the table
   */
  constructor({ columns, key, sortBy = -1, descending = false }) {
    this.columns = columns;
    this.key = key;
    this.by = sortBy; // index of a column; -1: the order of the broker
    this.descending = descending;
  }

  /** Sort by a column, or turn the order if it is that column already. */
  choose(i) {
    // Sort numbers in descending order first, names in ascending order.
    this.descending = this.by === i ? !this.descending : Boolean(this.columns[i].number);
    this.by = i;
  }

  /** Return the order as text: the label of its column, with “-” before it if it is descending. */
  text() {
    const { label } = this.columns[this.by] ?? { label: "" };
    return this.descending ? `-${label}` : label;
  }

  /** Set the order from its text. An unknown column changes nothing. */
  set(text) {
    const label = text.replace(/^-/, "");
    const i = this.columns.findIndex((column) => column.sort && column.label === label);
    if (i < 0) return;
    this.by = i;
    this.descending = text.startsWith("-");
  }

  /** Sort rows in place. Equal rows are sorted by their keys. */
  sort(rows) {
    const sort = this.columns[this.by]?.sort;
    if (!sort) return;
    const sign = this.descending ? -1 : 1;
    rows.sort(
      (a, b) => sign * compare(sort(a), sort(b)) || compare(this.key(a), this.key(b)),
    );
  }
}

const collator = new Intl.Collator(undefined, { numeric: true });

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}
