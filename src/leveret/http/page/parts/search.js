/**
 * The search field above a table, with filter buttons and the choice of columns. The key `/` focuses
 * the field. The address of the page keeps the search, the filter, the order and the first visible
 * row.
 *
 * `searchOver` searches the rows of a table that has them all. parts/paged_list.js lets the broker
 * search.
 */

import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { currentPath, currentQuery, noteQuery } from "../router.js";
import { columnButton } from "./column_choice.js";

const WAIT_MS = 80; // after a key press, because filtering ten thousand rows takes time
const NOTE_MS = 200; // after scrolling; browsers limit how often an address may change

/**
 * @param {import("./table.js").Table} table
 * @param {{label: string, text: (row: any) => string,
 *   choices?: [string, (row: any) => boolean][], totals?: (rows: any[]) => string}} options the first
 *   choice is active at the start; `totals` sums up the rows that are shown
 */
export function searchOver(table, { label, text, choices = [], totals }) {
  const bar = new SearchBar(table, { label, choices: choices.map(([name]) => name) }, apply);

  function apply() {
    const wanted = bar.wanted();
    if (wanted === null) return; // the table stays as it is: the pattern is invalid
    const choice = choices[bar.chosen]?.[1];
    const matches = makeMatcher(wanted);
    bar.note();
    table.setFilter((row) => (!choice || choice(row)) && matches(text(row)));
    say();
  }
  function say() {
    if (table.isLoaded) bar.say(table.shown.length, totals?.(table.shown));
  }
  apply();
  return { el: bar.el, say };
}

/** The field, the buttons and the status of a search. */
export class SearchBar {
  /**
   * @param {import("./table.js").Table} table
   * @param {{label: string, choices: string[]}} options
   * @param {() => void} onChange called when the user has changed the search
   */
  constructor(table, { label, choices }, onChange) {
    const query = currentQuery();
    this.path = currentPath();
    this.table = table;
    this.choices = choices;
    this.onChange = onChange;
    this.firstOrder = table.order.text();
    this.chosen = Math.max(0, choices.indexOf(query.get("show")));
    this.timer = 0;
    this.noting = 0;
    this.status = h("span", { class: "soft", role: "status" });
    this.input = h("input", {
      type: "search",
      placeholder: `${label} (text or /regex/)`,
      "aria-label": label,
      "data-search": true,
      autocomplete: "off",
      spellcheck: "false",
      value: query.get("q") ?? "",
      oninput: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(this.onChange, WAIT_MS);
      },
    });
    this.group = h("div", { class: "choices", role: "group", "aria-label": "Show" });
    this.drawChoices();
    table.order.set(query.get("sort") ?? "");
    table.drawHead();
    table.startRow = Number(query.get("row")) || 0;
    table.onMove = () => this.noteSoon();
    this.el = h(
      "div",
      { class: "row" },
      h("div", { class: "grow" }, this.input),
      choices.length > 0 && this.group,
      this.status,
      columnButton(table, this.onChange),
    );
  }

  /**
   * Return what the user looks for, or null if it is an invalid pattern.
   * @returns {{text: string, isPattern: boolean}|null}
   */
  wanted() {
    const given = this.input.value.trim();
    const [, pattern] = /^\/(.+)\/$/.exec(given) ?? [];
    this.input.removeAttribute("aria-invalid");
    if (!pattern) return { text: given, isPattern: false };
    try {
      new RegExp(pattern);
      return { text: pattern, isPattern: true };
    } catch {
      this.refuse(`${given} is not a valid regular expression.`);
      return null;
    }
  }

  /** Show that the search cannot be done. */
  refuse(reason) {
    this.input.setAttribute("aria-invalid", "true");
    this.status.textContent = reason;
  }

  /** Say how many rows were found, and their totals. */
  say(shown, totals) {
    if (this.input.hasAttribute("aria-invalid")) return;
    const { total } = this.table;
    const number =
      shown === total ? `${count(total)} in total` : `${count(shown)} of ${count(total)}`;
    const said = totals && shown > 0 ? `${number}: ${totals}` : number;
    // Screen readers read each change.
    if (this.status.textContent !== said) this.status.textContent = said;
  }

  noteSoon() {
    clearTimeout(this.noting);
    this.noting = setTimeout(() => this.note(), NOTE_MS);
  }

  /** Note the search in the address. */
  note() {
    clearTimeout(this.noting);
    // The user may have gone to another view, which may still be loading.
    if (!this.input.isConnected || currentPath() !== this.path) return;
    const { order } = this.table;
    const top = this.table.topRow();
    noteQuery({
      q: this.input.value.trim() || null,
      show: this.chosen > 0 ? this.choices[this.chosen] : null,
      sort: order.text() !== this.firstOrder ? order.text() : null,
      row: top > 0 ? String(top) : null,
    });
  }

  drawChoices() {
    fill(
      this.group,
      this.choices.map((name, i) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(i === this.chosen),
            onclick: () => {
              this.chosen = i;
              this.drawChoices();
              this.onChange();
            },
          },
          name,
        ),
      ),
    );
  }
}

/** Return a predicate for a text, which ignores case. */
function makeMatcher({ text: wanted, isPattern }) {
  if (wanted === "") return () => true;
  if (isPattern) {
    const regex = new RegExp(wanted, "i");
    return (text) => regex.test(text);
  }
  const lower = wanted.toLowerCase();
  return (text) => text.toLowerCase().includes(lower);
}
