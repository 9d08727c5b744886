/**
 * The messages of a queue: show the first ones, search all of them, and start a task for those that
 * are selected or that match. Showing and searching change nothing.
 */

import { apiPath, get, post } from "../api.js";
import { fill, h } from "../dom.js";
import { age, bytes, count, pluralize, time } from "../format.js";
import { Form } from "../parts/form.js";
import { badge, button, empty } from "../parts/elements.js";
import { Table } from "../parts/table.js";
import { noteQuery } from "../router.js";
import { FILTER_FIELDS, makeFilter, hasFilter } from "./message_filter.js";
import { showMessage } from "./message_dialog.js";
import { startTask } from "./message_tasks.js";

const FIRST_COUNT = 100;
const SEARCH_LIMIT = 200;
const TRUNCATE = 2000; // bytes of each body

export function messagesTab({ vhost, name, query, reload }) {
  const queue = apiPath`/queues/${vhost}/${name}`;
  const form = new Form(FILTER_FIELDS);
  const status = h("p", { class: "soft", role: "status" });
  const acts = h("div", { class: "row" });
  const more = h("div", { class: "row" });
  const progress = h("div", { class: "stack" });
  const table = new Table({
    label: "Messages in the queue",
    key: (message) => message.id,
    columns: columns(),
    empty: empty("No messages."),
    onPick: drawActions,
    onOpen: (message) => showMessage({ vhost, name, message }),
  });
  /** The filter of the shown messages; null if they are the first ones. */
  let filter = null;
  let cursor = null;
  let asked = 0;

  async function loadFirst() {
    const items = await get(`${queue}/peek?count=${FIRST_COUNT}&truncate=${TRUNCATE}`);
    const text =
      items.length < FIRST_COUNT
        ? `${pluralize(items.length, "ready message")}; there are no others.`
        : `The first ${FIRST_COUNT} ready messages.`;
    return { filter: null, cursor: null, items, text };
  }

  async function search(wanted, from) {
    const body = { ...wanted, limit: SEARCH_LIMIT, truncate: TRUNCATE, cursor: from };
    const answer = await post(`${queue}/search`, body);
    const items = from ? [...table.rows, ...answer.items] : answer.items;
    const scanned = answer.scanned !== undefined ? `, ${count(answer.scanned)} scanned` : "";
    const all = answer.total !== undefined ? ` of ${count(answer.total)}` : "";
    const rest = answer.cursor ? " Not all messages are scanned yet." : "";
    const text = `${pluralize(items.length, "message")} found${scanned}${all}.${rest}`;
    return { filter: wanted, cursor: answer.cursor, items, text };
  }

  function show(found) {
    ({ filter, cursor } = found);
    table.setRows(found.items);
    status.textContent = found.text;
    fill(more, cursor && button("Continue the search", () => run(() => search(filter, cursor))));
    drawActions();
  }

  /** Show the result of `work`, unless another request was started meanwhile. */
  async function run(work) {
    const turn = ++asked;
    const unlessLate = (act) => turn === asked && act();
    status.textContent = "Loading …";
    table.el.setAttribute("aria-busy", "true");
    try {
      const found = await work();
      unlessLate(() => show(found));
    } catch (fault) {
      const rest = table.isLoaded ? " The table shows the last answer." : "";
      unlessLate(() => (status.textContent = fault.message + rest));
    } finally {
      unlessLate(() => table.el.removeAttribute("aria-busy"));
    }
  }

  function drawActions() {
    const picked = [...table.picked];
    const isAll = picked.length === 0;
    const what = isAll
      ? filter
        ? "All matching messages"
        : "All ready messages"
      : pluralize(picked.length, "selected message");
    const choice = isAll
      ? { ids: null, filter: filter ?? { states: ["ready"] } }
      : { ids: picked, filter: null };
    const act = (kind) => () =>
      startTask({
        kind,
        vhost,
        queue: name,
        ...choice,
        what,
        progress,
        onDone: () => (reload(), run(filter ? () => search(filter, null) : loadFirst)),
      });
    fill(
      acts,
      h("span", { class: "soft" }, `${what}:`),
      button("Move", act("move"), "small"),
      button("Copy", act("copy"), "small"),
      button("Redrive", act("redrive"), "small"),
      button("Delete", act("delete"), "small danger"),
    );
  }

  const text = h("input", {
    type: "search",
    placeholder: "Text in the payload",
    "aria-label": "Text in the payload",
    "data-search": true,
    autocomplete: "off",
    value: query.get("text") ?? "",
  });
  const formEl = h(
    "form",
    { class: "stack", novalidate: true, role: "search" },
    h(
      "div",
      { class: "row" },
      h("div", { class: "grow" }, text),
      h("button", { class: "main", type: "submit" }, "Search"),
      button("Show the first", () => run(loadFirst)),
    ),
    h("details", null, h("summary", null, "More filters"), form.el),
  );
  const load = async () => {
    const wanted = makeFilter({ ...form.values(), text: text.value });
    return hasFilter(wanted) ? search(wanted, null) : loadFirst();
  };
  formEl.onsubmit = (event) => {
    event.preventDefault();
    noteQuery({ text: text.value || null });
    run(load);
  };
  const el = h(
    "div",
    { class: "stack" },
    h("section", { class: "sheet", "aria-label": "Search" }, formEl),
    progress,
    h("div", { class: "title" }, status, acts),
    table.el,
    more,
  );

  async function refresh() {
    // Only the user reloads messages: rows must not change while they are selected.
    if (!table.isLoaded) await run(load);
  }
  drawActions();
  return { el, refresh };
}

function columns() {
  return [
    {
      label: "Payload",
      cell: (m) =>
        h("span", { class: "mono", title: (m.payload ?? "").slice(0, 1000) }, preview(m)),
    },
    { label: "State", cell: state, width: "11.5rem" },
    {
      label: "Routing key",
      cell: (m) => m.routing_key,
      sort: (m) => m.routing_key,
      width: "9rem",
      minor: true,
    },
    {
      label: "Message id",
      cell: (m) => m.properties?.message_id ?? "–",
      sort: (m) => m.properties?.message_id ?? "",
      width: "9rem",
      minor: true,
    },
    {
      label: "Age",
      number: true,
      cell: (m) => age(m.age_ms),
      sort: (m) => m.age_ms ?? 0,
      width: "5rem",
      minor: true,
    },
    {
      label: "Size",
      number: true,
      cell: (m) => bytes(m.payload_bytes),
      sort: (m) => m.payload_bytes,
      width: "5.5rem",
      minor: true,
    },
  ];
}

/** Return the beginning of a body on one line. */
export function preview(message) {
  if (message.payload_encoding === "base64") return `(binary) ${message.payload.slice(0, 60)}`;
  return (message.payload ?? "").slice(0, 200).replace(/\s+/g, " ") || "(empty)";
}

function state(message) {
  if (message.state === "scheduled")
    return h("span", { title: time(message.due_at_ms) }, badge("scheduled"));
  if (message.state === "unacked") return badge("in flight", "warn");
  return [badge("ready", "good"), message.redelivered && badge("redelivered")];
}
