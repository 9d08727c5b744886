/** The filter of a message search: its form fields, and the body of the API call. */

import { readValue } from "../parts/form.js";

/** @type {import("../parts/form.js").Field[]} */
export const FILTER_FIELDS = [
  {
    name: "state",
    label: "State",
    type: "select",
    options: [
      ["", "any"],
      ["ready", "ready"],
      ["scheduled", "scheduled"],
      ["unacked", "in flight"],
    ],
  },
  { name: "routing_key", label: "Routing key" },
  {
    name: "property",
    label: "Property",
    hint: "message_id: a1",
    options: ["message_id: ", "correlation_id: ", "type: ", "app_id: "],
  },
  { name: "header", label: "Header", hint: "tenant: acme" },
  { name: "json", label: "JSON path", hint: "$.order.id: 5" },
  { name: "older", label: "Older than (seconds)", type: "number" },
  { name: "newer", label: "Newer than (seconds)", type: "number" },
];

/** Return the body of a search without the fields that are empty. */
export function makeFilter(values) {
  const filter = {};
  if (values.text) filter.text = values.text;
  if (values.state) filter.states = [values.state];
  if (values.routing_key) filter.routing_key = values.routing_key;
  if (values.property) filter.properties = pair(values.property, "Property", false);
  if (values.header) filter.headers = pair(values.header, "Header", true);
  if (values.json) filter.json = pair(values.json, "JSON path", true);
  if (values.older !== null) filter.older_than_ms = Math.round(values.older * 1000);
  if (values.newer !== null) filter.newer_than_ms = Math.round(values.newer * 1000);
  return filter;
}

export function hasFilter(filter) {
  return Object.keys(filter).length > 0;
}

function pair(text, label, isTyped) {
  const [, name, value] = /^\s*(.+?)\s*[:=]\s*(.*?)\s*$/.exec(text) ?? [];
  if (name === undefined) throw new Error(`“${label}” must be “name: value”.`);
  return { [name]: isTyped ? readValue(value) : value };
}
