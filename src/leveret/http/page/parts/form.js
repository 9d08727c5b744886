/**
 * Build forms from descriptions of their fields.
 *
 * @typedef {Object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text"|"number"|"password"|"select"|"check"|"area"|"lines"|"file"} [type] `lines` is a
 *   table, written as one `name: value` per line
 * @property {any} [value]
 * @property {string} [hint]
 * @property {boolean} [required]
 * @property {boolean} [whole] takes the whole width
 * @property {string[]|[string, string][]} [options] of a select, or suggestions for a text
 * @property {string[]} [names] suggestions for the names of `lines`
 * @property {number} [rows] of a text over several lines
 * @property {string} [autocomplete]
 */

import { h } from "../dom.js";

let forms = 0;

export class Form {
  /** @param {Field[]} fields */
  constructor(fields) {
    forms += 1;
    this.prefix = `form-${forms}`;
    this.fields = fields;
    /** @type {Map<string, HTMLInputElement>} */
    this.controls = new Map();
    this.el = h(
      "div",
      { class: "fields" },
      fields.map((field) => this.build(field)),
    );
  }

  focus() {
    this.controls.values().next().value?.focus();
  }

  control(name) {
    return this.controls.get(name);
  }

  /** Return the entered values. Throw an Error with a sentence if one is missing or wrong. */
  values() {
    const found = {};
    for (const field of this.fields) {
      const control = this.controls.get(field.name);
      try {
        control.removeAttribute("aria-invalid");
        found[field.name] = read(field, control);
      } catch (fault) {
        control.setAttribute("aria-invalid", "true");
        control.focus();
        throw fault;
      }
    }
    return found;
  }

  build(field) {
    const id = `${this.prefix}-${field.name}`;
    const control = makeControl(field, id);
    this.controls.set(field.name, control);
    const isWhole = field.whole || field.type === "area" || field.type === "lines";
    if (field.type === "check") {
      return h(
        "div",
        { class: isWhole ? "field whole" : "field" },
        h("label", { class: "check", for: id }, control, field.label),
        hint(field, id),
      );
    }
    return h(
      "div",
      { class: isWhole ? "field whole" : "field" },
      h("label", { for: id }, field.label),
      control,
      suggestions(field, id),
      names(field, control),
      hint(field, id),
    );
  }
}

function makeControl(field, id) {
  const shared = {
    id,
    name: field.name,
    required: field.required,
    autocomplete: field.autocomplete ?? "off",
    "aria-describedby": field.hint ? `${id}-hint` : null,
    value: field.type === "check" ? undefined : shownValue(field),
  };
  if (field.type === "select") {
    const options = (field.options ?? []).map((option) =>
      Array.isArray(option) ? option : [option, option],
    );
    return h(
      "select",
      shared,
      options.map(([value, label]) => h("option", { value }, label)),
    );
  }
  if (field.type === "area" || field.type === "lines")
    return h("textarea", { ...shared, spellcheck: "false", rows: field.rows ?? 4 });
  if (field.type === "check")
    return h("input", { ...shared, type: "checkbox", checked: field.value });
  const list = field.options ? `${id}-list` : null;
  const type = field.type === "number" ? "text" : (field.type ?? "text");
  const inputmode = field.type === "number" ? "numeric" : null;
  return h("input", {
    ...shared,
    type,
    inputmode,
    list,
    autocapitalize: "off",
    spellcheck: "false",
  });
}

function shownValue(field) {
  if (field.type === "lines" && field.value) return writeLines(field.value);
  return (
    field.value ?? (field.type === "select" ? undefined : field.type === "file" ? undefined : "")
  );
}

function suggestions(field, id) {
  if (!field.options || field.type === "select") return null;
  return h(
    "datalist",
    { id: `${id}-list` },
    field.options.map((value) => h("option", { value })),
  );
}

/** Make buttons that add a name to a table. */
function names(field, control) {
  if (!field.names) return null;
  const add = (name) => {
    const before =
      control.value && !control.value.endsWith("\n") ? `${control.value}\n` : control.value;
    control.value = `${before}${name}: `;
    control.focus();
  };
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": `Suggested names for ${field.label}` },
    field.names.map((name) => h("button", { type: "button", onclick: () => add(name) }, name)),
  );
}

function hint(field, id) {
  return field.hint ? h("div", { class: "hint", id: `${id}-hint` }, field.hint) : null;
}

function read(field, control) {
  if (field.type === "check") return control.checked;
  if (field.type === "file") return control.files?.[0] ?? null;
  const text =
    field.type === "password" || field.type === "area" ? control.value : control.value.trim();
  if (text === "") {
    if (field.required) throw new Error(`“${field.label}” is required.`);
    return field.type === "lines" ? {} : field.type === "number" ? null : text;
  }
  if (field.type === "number") {
    if (!/^-?\d+(\.\d+)?$/.test(text))
      throw new Error(`“${field.label}” must be a number, not “${text}”.`);
    return Number(text);
  }
  return field.type === "lines" ? readLines(text, field.label) : text;
}

/**
 * Parse one `name: value` per line. A value that is valid JSON is JSON (60000, true, {"a": 1});
 * anything else is text. Quotes turn a number into text.
 */
export function readLines(text, label) {
  const found = {};
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const [, name, value] = /^\s*([^:=]+?)\s*[:=]\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined)
      throw new Error(`“${label}” needs “name: value” on each line, not “${line.trim()}”.`);
    found[name] = readValue(value);
  }
  return found;
}

/** Return the value as JSON if it is valid JSON, otherwise as text. */
export function readValue(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

export function writeLines(table) {
  const isOdd = (value) => typeof value !== "string" || readValue(value) !== value;
  return Object.entries(table)
    .map(([name, value]) => `${name}: ${isOdd(value) ? JSON.stringify(value) : value}`)
    .join("\n");
}
