/** The search field above a table, with filter buttons. The key `/` focuses it. */

import { fill, h } from "../dom.js";
import { count } from "../format.js";

const WAIT_MS = 80; // after a key press, because filtering ten thousand rows takes time

/**
 * @param {import("./table.js").Table} table
 * @param {{label: string, text: (row: any) => string,
 *   choices?: [string, (row: any) => boolean][]}} options the first choice is active at the start
 */
export function searchOver(table, { label, text, choices = [] }) {
  let chosen = 0;
  let timer = 0;
  const status = h("span", { class: "soft", role: "status" });
  const input = h("input", {
    type: "search",
    placeholder: `${label} (text or /regex/)`,
    "aria-label": label,
    "data-search": true,
    autocomplete: "off",
    spellcheck: "false",
  });
  const group = h("div", { class: "choices", role: "group", "aria-label": "Show" });

  function apply() {
    const wanted = makeMatcher(input.value.trim());
    const choice = choices[chosen]?.[1];
    table.setFilter((row) => (!choice || choice(row)) && wanted(text(row)));
    say();
  }
  function say() {
    if (!table.isLoaded) return;
    const all = table.rows.length;
    const shown = table.shown.length;
    const text = shown === all ? `${count(all)} in total` : `${count(shown)} of ${count(all)}`;
    if (status.textContent !== text) status.textContent = text; // screen readers read each change
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
  drawChoices();
  const el = h(
    "div",
    { class: "row" },
    h("div", { class: "grow" }, input),
    choices.length > 0 && group,
    status,
  );
  return { el, say };
}

/** Return a predicate for a text: contains the wanted text, or matches a /regex/. Ignores case. */
function makeMatcher(wanted) {
  if (wanted === "") return () => true;
  const [, pattern] = /^\/(.+)\/$/.exec(wanted) ?? [];
  if (pattern) {
    try {
      const regex = new RegExp(pattern, "i");
      return (text) => regex.test(text);
    } catch {
      return () => false;
    }
  }
  const lower = wanted.toLowerCase();
  return (text) => text.toLowerCase().includes(lower);
}
