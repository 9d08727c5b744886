/**
 * A table whose rows the broker sorts and filters. Only the pages that are visible are loaded, so
 * that a list of fifty thousand queues costs as much as a list of a hundred.
 */

import { get, queryString } from "../api.js";
import { SearchBar } from "./search.js";

const PAGE_ROWS = 100;
const SCROLL_MS = 100; // after scrolling, before the rows are loaded

/**
 * @param {import("./table.js").Table} table
 * @param {{label: string, path: () => string, fields: string, only?: string,
 *   choices?: [string, string][], totals?: (sums: any) => string, reload: () => void}} options
 *   `fields` are loaded for every row, those of columns only while they are shown; `only` and the
 *   second part of a choice are values of the query `only`
 */
export function pagedList(table, { label, path, fields, only, choices = [], totals, reload }) {
  const bar = new SearchBar(table, { label, choices: choices.map(([name]) => name) }, search);
  const noteMove = table.onMove;
  let timer = 0;
  table.onSort = search;
  table.onMove = () => {
    noteMove();
    clearTimeout(timer);
    if (!table.hasVisibleRows()) timer = setTimeout(reload, SCROLL_MS);
  };

  function search() {
    if (bar.wanted() === null) return; // the table stays as it is: the pattern is invalid
    table.startRow = 0;
    table.el.scrollTop = 0;
    table.el.setAttribute("aria-busy", "true");
    bar.note();
    reload();
  }

  async function refresh(signal) {
    const wanted = bar.wanted();
    if (wanted === null) return;
    try {
      const pages = await loadPages(visiblePages(table), { ...query(), ...nameQuery(wanted) }, signal);
      table.el.setAttribute("aria-busy", "false");
      table.setPage(joined(pages));
      bar.say(table.shown.length, totals?.(pages[0].totals));
    } catch (fault) {
      if (fault.status !== 400 || !wanted.isPattern) throw fault;
      table.el.setAttribute("aria-busy", "false");
      bar.refuse(fault.message); // the browser knows more kinds of patterns than the broker
    }
  }

  function query() {
    const column = table.options.columns[table.order.by];
    const chosen = [only, choices[bar.chosen]?.[1]].filter(Boolean);
    return {
      columns: [fields, ...table.shownColumns().map((c) => c.field)].filter(Boolean).join(),
      sort: column?.sort,
      sort_reverse: table.order.descending ? "true" : "",
      only: chosen.join(),
      totals: totals ? "true" : "",
    };
  }

  async function loadPages([first, last], values, signal) {
    const load = (page) =>
      get(path() + queryString({ ...values, page, page_size: PAGE_ROWS }), { signal });
    const numbers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    try {
      return await Promise.all(numbers.map(load));
    } catch (fault) {
      if (fault.status !== 400 || last === 1) throw fault;
      table.startRow = 0; // there are fewer rows than before
      table.el.scrollTop = 0;
      return [await load(1)];
    }
  }
  return { el: bar.el, refresh };
}

function nameQuery({ text, isPattern }) {
  return { name: text, use_regex: isPattern ? "true" : "" };
}

/** Return the first and the last page with visible rows. */
function visiblePages(table) {
  const [first, end] = table.visibleRange();
  const last = table.isLoaded ? Math.min(end, Math.max(table.shown.length, 1)) : first + 1;
  const page = (row) => Math.floor(row / PAGE_ROWS) + 1;
  return [Math.min(page(first), page(last - 1)), page(last - 1)];
}

function joined(pages) {
  return {
    first: (pages[0].page - 1) * PAGE_ROWS,
    rows: pages.flatMap((page) => page.items),
    found: pages.at(-1).filtered_count,
    total: pages.at(-1).total_count,
  };
}
