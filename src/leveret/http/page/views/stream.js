/** One stream, browsed by offset or time. Nothing is consumed, and no cursor moves. */

import { apiPath, get } from "../api.js";
import { connectionName, loadConnectionNames } from "../connection_names.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration, time } from "../format.js";
import { openDialog } from "../parts/dialog.js";
import { Form } from "../parts/form.js";
import { badge, button, empty, figures, head, sheet, list } from "../parts/elements.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { messageFacts } from "./message_dialog.js";
import { payloadSection } from "./payload.js";
import { preview } from "./queue_messages.js";

const PAGE = 100;
const TRUNCATE = 4000;

export function view({ params }) {
  const { vhost, name } = params;
  const path = apiPath`/streams/${vhost}/${name}`;
  const totals = h("div");
  const readers = h("div");
  const status = h("p", { class: "soft", role: "status" });
  const table = new Table({
    label: "Messages of the stream",
    key: (message) => String(message.offset),
    columns: columns(),
    empty: empty("No messages."),
    onOpen: (message) => show(message, path),
    opens: 1,
  });
  const form = new Form([
    { name: "offset", label: "From offset", type: "number" },
    { name: "time", label: "Or from time", hint: "2026-05-01 12:00, in your time zone" },
  ]);
  let info = { first_offset: 0, end_offset: 0 };
  let shownFrom = null; // the first shown offset
  let following = 0; // the offset after the last shown one

  async function load(from) {
    status.textContent = "Loading …";
    try {
      const found = await get(
        `${path}/messages?from=${Math.max(from, 0)}&count=${PAGE}&truncate=${TRUNCATE}`,
      );
      table.setRows(found.items);
      table.el.scrollTop = 0;
      shownFrom = found.items[0]?.offset ?? from;
      following = found.next_offset;
      status.textContent =
        found.items.length > 0
          ? `Offsets ${count(shownFrom)} to ${count(found.items.at(-1).offset)}.`
          : "No messages from this offset on.";
    } catch (fault) {
      status.textContent = fault.message;
    }
  }

  async function seek(event) {
    event.preventDefault();
    try {
      const values = form.values();
      if (values.time) {
        const moment = new Date(values.time);
        if (Number.isNaN(moment.getTime())) throw new Error("Enter a time such as 2026-05-01 12:00.");
        const found = await get(`${path}/offset?timestamp=${moment.getTime()}`);
        await load(found.offset);
      } else await load(values.offset ?? info.first_offset);
    } catch (fault) {
      status.textContent = fault.message;
    }
  }

  const formEl = h(
    "form",
    { class: "stack", novalidate: true },
    form.el,
    h(
      "div",
      { class: "row" },
      h("button", { class: "main", type: "submit" }, "Go"),
      button("First", () => load(info.first_offset)),
      button("Previous", () => load(Math.max(info.first_offset, (shownFrom ?? 0) - PAGE))),
      button("Next", () => load(Math.min(following, info.end_offset))),
      button("Newest", () => load(Math.max(info.first_offset, info.end_offset - PAGE))),
    ),
  );
  formEl.onsubmit = seek;
  const el = h(
    "div",
    { class: "view" },
    head({
      title: name,
      crumb: [h("a", { href: "#/streams" }, "Streams"), ` in vhost ${vhost}`],
      actions: [h("a", { class: "button", href: link("queues", vhost, name) }, "Show as queue")],
    }),
    h("section", { class: "sheet", "aria-label": "Totals" }, totals),
    sheet("Readers", readers),
    sheet("Messages", formEl),
    h("div", { class: "stack" }, status, table.el),
  );

  async function refresh(signal) {
    [info] = await Promise.all([get(path, { signal }), loadConnectionNames(signal)]);
    fill(totals, drawTotals(info));
    fill(readers, drawReaders(info));
    if (shownFrom === null) await load(Math.max(info.first_offset, info.end_offset - PAGE));
  }
  return { title: name, el, refresh };
}

function columns() {
  return [
    {
      label: "Offset",
      number: true,
      sort: (m) => m.offset,
      cell: (m) => count(m.offset),
      width: "7rem",
    },
    { label: "Payload", cell: (m) => h("span", { class: "mono" }, preview(m)) },
    {
      label: "Routing key",
      sort: (m) => m.routing_key,
      cell: (m) => m.routing_key,
      width: "10rem",
      minor: true,
    },
    {
      label: "Received",
      sort: (m) => m.timestamp_ms,
      cell: (m) => time(m.timestamp_ms),
      width: "13rem",
      minor: true,
    },
    {
      label: "Size",
      number: true,
      sort: (m) => m.payload_bytes,
      cell: (m) => bytes(m.payload_bytes),
      width: "6rem",
      minor: true,
    },
  ];
}

function show(message, path) {
  const body = payloadSection(message, `${path}/messages/${message.offset}/body`);
  openDialog({
    title: `Offset ${count(message.offset)}`,
    wide: true,
    body: h("div", { class: "stack" }, body.el, messageFacts(message)),
    footer: h("footer", null, body.buttons),
  });
}

function drawTotals(info) {
  return figures([
    ["Messages", count(info.messages)],
    ["First offset", count(info.first_offset)],
    ["Next offset", count(info.end_offset)],
    ["On disk", bytes(info.bytes)],
    ["Segments", count(info.segments)],
    ["Newest", h("small", null, time(info.last_timestamp_ms))],
  ]);
}

function drawReaders(info) {
  return list(
    [
      { label: "Name", cell: (r) => h("span", { class: "mono" }, r.name) },
      { label: "Kind", cell: readerKind },
      { label: "Next offset", number: true, cell: (r) => count(r.offset) },
      { label: "Messages behind", number: true, cell: (r) => count(r.behind) },
      {
        label: "Time behind",
        number: true,
        cell: (r) => (r.behind === 0 ? badge("up to date", "good") : behindTime(r)),
      },
    ],
    info.readers ?? [],
    "Nobody reads this stream: it has no cursors and no consumers.",
  );
}

function behindTime(reader) {
  return typeof reader.behind_ms === "number" ? duration(reader.behind_ms) : "unknown";
}

function readerKind(reader) {
  if (reader.kind !== "consumer") return "cursor";
  const name = connectionName(reader.connection);
  return ["consumer of ", h("a", { href: link("connections", reader.connection) }, name)];
}
