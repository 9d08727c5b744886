/**
 * The search field above a table, with filter buttons. The key `/` focuses it. The address of the
 * page keeps the search, the filter, the order and the first visible row.
 */

import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { currentQuery, noteQuery } from "../router.js";

const WAIT_MS = 80; // after a key press, because filtering ten thousand rows takes time
const NOTE_MS = 200; // after scrolling; browsers limit how often an address may change

/**
 * @param {import("./table.js").Table} table
 * @param {{label: string, text: (row: any) => string,
 *   choices?: [string, (row: any) => boolean][], totals?: (rows: any[]) => string}} options the first
 *   choice is active at the start; `totals` sums up the rows that are shown
 */
export function searchOver(table, { label, text, choices = [], totals }) {
  const query = currentQuery();
  const firstOrder = table.order.text();
  let chosen = Math.max(0, choices.findIndex(([name]) => name === query.get("show")));
  let timer = 0;
  let noting = 0;
  const status = h("span", { class: "soft", role: "status" });
  const input = h("input", {
    type: "search",
    placeholder: `${label} (text or /regex/)`,
    "aria-label": label,
    "data-search": true,
    autocomplete: "off",
    spellcheck: "false",
    value: query.get("q") ?? "",
  });
  const group = h("div", { class: "choices", role: "group", "aria-label": "Show" });

  function apply() {
    let wanted;
    try {
      wanted = makeMatcher(input.value.trim());
      input.removeAttribute("aria-invalid");
    } catch {
      // The table stays as it is: an invalid pattern does not mean that nothing matches.
      input.setAttribute("aria-invalid", "true");
      status.textContent = `${input.value.trim()} is not a valid regular expression.`;
      return;
    }
    const choice = choices[chosen]?.[1];
    note();
    table.setFilter((row) => (!choice || choice(row)) && wanted(text(row)));
    say();
  }
  function note() {
    clearTimeout(noting);
    if (!input.isConnected) return; // the user has gone to another view
    noteQuery({
      q: input.value.trim() || null,
      show: chosen > 0 ? choices[chosen][0] : null,
      sort: table.order.text() !== firstOrder ? table.order.text() : null,
      row: table.topRow() > 0 ? String(table.topRow()) : null,
    });
  }
  function say() {
    if (!table.isLoaded || input.hasAttribute("aria-invalid")) return;
    const all = table.rows.length;
    const shown = table.shown.length;
    const number = shown === all ? `${count(all)} in total` : `${count(shown)} of ${count(all)}`;
    const said = totals && shown > 0 ? `${number}: ${totals(table.shown)}` : number;
    if (status.textContent !== said) status.textContent = said; // screen readers read each change
  }
  function drawChoices() {
    fill(
      group,
      choices.map(([name], i) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(i === chosen),
            onclick: () => {
              chosen = i;
              drawChoices();
              apply();
            },
          },
          name,
        ),
      ),
    );
  }
  input.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(apply, WAIT_MS);
  };
  table.order.set(query.get("sort") ?? "");
  table.drawHead();
  table.startRow = Number(query.get("row")) || 0;
  table.onMove = () => {
    clearTimeout(noting);
    noting = setTimeout(note, NOTE_MS);
  };
  drawChoices();
  apply();
  const el = h(
    "div",
    { class: "row" },
    h("div", { class: "grow" }, input),
    choices.length > 0 && group,
    status,
  );
  return { el, say };
}

/**
 * Return a predicate for a text: contains the wanted text, or matches a /regex/.
 * Ignores case. Throws a SyntaxError if the regex is invalid.
 */
function makeMatcher(wanted) {
  if (wanted === "") return () => true;
  const [, pattern] = /^\/(.+)\/$/.exec(wanted) ?? [];
  if (pattern) {
    const regex = new RegExp(pattern, "i");
    return (text) => regex.test(text);
  }
  const lower = wanted.toLowerCase();
  return (text) => text.toLowerCase().includes(lower);
}
