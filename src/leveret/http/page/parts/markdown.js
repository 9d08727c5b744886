/**
 * Markdown as elements: the part of it that the documents of Leveret use. Headings, paragraphs,
 * lists, tables, code, links, strong and emphasised text. Comments are left out. Text becomes
 * elements through `h` only, so HTML in a document is shown and does not run.
 */

import { h } from "../dom.js";

const FENCE = /^```/;
const HEADING = /^(#{1,6}) +(.*)$/;
const ITEM = /^(?:[-*]|\d+\.) +/;
const NUMBER = /^\d/;
const TABLE = /^\|/;
const RULE = /^\|?[\s:|-]+\|?$/;
const CODE_INDENT = 4;
const INLINE = /(`+)(.+?)\1(?!`)|\[([^\]]*)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|\*([^\s*][^*]*)\*|\\([\\`*_[\]<>|])/gs;

/**
 * @param {string} text
 * @param {(href: string) => string|null} linkOf returns the address of a link; null: no link
 * @returns {HTMLElement[]}
 */
export function markdown(text, linkOf) {
  return blocks(text.replace(/<!--.*?-->\n?/gs, "").split("\n"), linkOf);
}

/** Return the id of a heading, as GitHub makes it. */
export function headingId(text) {
  const words = text.replace(/[`*]/g, "").toLowerCase().trim();
  return words.replace(/[^\p{L}\p{N}\s_-]/gu, "").replace(/\s/g, "-");
}

function blocks(lines, linkOf) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const heading = HEADING.exec(line);
    let end = at + 1;
    if (line.trim() === "") {
      at = end;
      continue;
    }
    if (FENCE.test(line)) {
      while (end < lines.length && !FENCE.test(lines[end])) end += 1;
      found.push(code(lines.slice(at + 1, end)));
      end += 1;
    } else if (heading) {
      const level = `h${heading[1].length}`;
      const isTitle = level === "h1";
      const props = isTitle ? { tabindex: "-1" } : { id: headingId(heading[2]) };
      found.push(h(level, props, inline(heading[2], linkOf)));
    } else if (TABLE.test(line) && RULE.test(lines[end] ?? "")) {
      while (end < lines.length && TABLE.test(lines[end])) end += 1;
      found.push(table(lines.slice(at, end), linkOf));
    } else if (indent(line) >= CODE_INDENT) {
      end = endOfIndented(lines, at, CODE_INDENT);
      found.push(code(lines.slice(at, end).map((each) => each.slice(CODE_INDENT))));
    } else if (ITEM.test(line)) {
      end = endOfList(lines, at);
      found.push(list(lines.slice(at, end), linkOf));
    } else {
      while (end < lines.length && !startsBlock(lines[end])) end += 1;
      found.push(h("p", null, inline(lines.slice(at, end).map((l) => l.trim()).join("\n"), linkOf)));
    }
    at = end;
  }
  return found;
}

function startsBlock(line) {
  return line.trim() === "" || [FENCE, HEADING, ITEM, TABLE].some((kind) => kind.test(line));
}

function indent(line) {
  return line.length - line.trimStart().length;
}

/** Return the end of the lines that are indented or blank, without blank lines at the end. */
function endOfIndented(lines, at, least) {
  let end = at + 1;
  for (let i = end; i < lines.length; i += 1) {
    if (lines[i].trim() === "") continue;
    if (indent(lines[i]) < least) break;
    end = i + 1;
  }
  return end;
}

/** Return the end of a list: its items with their indented lines, and blank lines between them. */
function endOfList(lines, at) {
  const isOrdered = NUMBER.test(lines[at]);
  let end = at;
  for (let item = at; item !== null; item = nextItem(lines, end, isOrdered)) {
    end = item + 1;
    while (end < lines.length && !startsBlock(lines[end])) end += 1; // lines of the same paragraph
    end = endOfIndented(lines, end - 1, 2);
  }
  return end;
}

/** Return the line of the next item of a list, or null. */
function nextItem(lines, at, isOrdered) {
  let next = at;
  while (next < lines.length && lines[next].trim() === "") next += 1;
  const line = lines[next] ?? "";
  return ITEM.test(line) && NUMBER.test(line) === isOrdered ? next : null;
}

function list(lines, linkOf) {
  const items = [];
  for (const line of lines) {
    const mark = ITEM.exec(line);
    if (mark) items.push({ width: mark[0].length, lines: [line.slice(mark[0].length)] });
    else {
      const item = items.at(-1);
      item.lines.push(line.slice(Math.min(indent(line), item.width)));
    }
  }
  return h(
    NUMBER.test(lines[0]) ? "ol" : "ul",
    null,
    items.map((item) => h("li", null, blocks(item.lines, linkOf))),
  );
}

function code(lines) {
  return h("pre", { tabindex: "0" }, h("code", null, lines.join("\n")));
}

function table(lines, linkOf) {
  const [names, , ...rows] = lines.map(cells);
  const label = names.find(Boolean) ?? "Table";
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": label.replace(/[`*]/g, "") },
    h(
      "table",
      null,
      names.some(Boolean) &&
        h("thead", null, h("tr", null, names.map((name) => headCell(name, linkOf)))),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h("tr", null, names.map((_, i) => h("td", null, inline(row[i] ?? "", linkOf)))),
        ),
      ),
    ),
  );
}

function headCell(name, linkOf) {
  return name ? h("th", { scope: "col" }, inline(name, linkOf)) : h("td", null);
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function inline(text, linkOf) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , span, label, href, strong, emphasis, escaped] = match;
    found.push(text.slice(at, match.index));
    at = match.index + whole.length;
    if (span !== undefined) found.push(h("code", null, span.replace(/^ (.*) $/s, "$1")));
    else if (href !== undefined) found.push(anchor(label, linkOf(href), linkOf));
    else if (strong !== undefined) found.push(h("strong", null, inline(strong, linkOf)));
    else if (emphasis !== undefined) found.push(h("em", null, inline(emphasis, linkOf)));
    else found.push(escaped);
  }
  return [...found, text.slice(at)];
}

function anchor(label, address, linkOf) {
  if (address === null) return inline(label, linkOf);
  return h("a", { href: address }, inline(label, linkOf));
}
