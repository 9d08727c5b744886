/** Where one message is now, and what happened to it. */

import { get, query as queryOf } from "../api.js";
import { fill, h } from "../dom.js";
import { count, plain, time } from "../format.js";
import { Form } from "../parts/form.js";
import { head, list, sheet } from "../parts/list.js";
import { go, link } from "../router.js";
import { vhost } from "../session.js";

const SHOWN_APART = ["time_ms", "event", "queue", "reason", "vhost", "id", "state"];

export function view({ query }) {
  const form = new Form([
    {
      name: "message_id",
      label: "Message id",
      value: query.get("message_id") ?? "",
      hint: "The property that its publisher set.",
    },
    {
      name: "id",
      label: "Or the broker's id",
      value: query.get("id") ?? "",
      hint: "As the list of messages shows it.",
    },
  ]);
  form.control("message_id").dataset.search = "";
  const result = h("div", { class: "stack", role: "status" });
  const element = h(
    "form",
    { class: "stack sheet", novalidate: true },
    form.el,
    h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Trace")),
  );
  element.onsubmit = (event) => {
    event.preventDefault();
    const values = form.values();
    const search = new URLSearchParams(
      values.id ? { id: values.id } : { message_id: values.message_id },
    );
    const wanted = `${link("trace")}?${search}`;
    if (location.hash === wanted) trace(values);
    else go(wanted);
  };

  async function trace({ message_id: messageId, id }) {
    if (!messageId && !id) return;
    fill(result, h("p", { class: "soft" }, "Looking through the queues …"));
    try {
      const found = await get(
        `/trace${queryOf(id ? { id } : { message_id: messageId, vhost: vhost() })}`,
      );
      fill(result, drawPlaces(found), drawEvents(found));
    } catch (fault) {
      fill(result, h("p", { class: "note bad" }, fault.message));
    }
  }
  trace({ message_id: query.get("message_id"), id: query.get("id") });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Trace a message", sub: "Through all states and dead-letterings" }),
    element,
    result,
  );
  return { title: "Trace", el };
}

function drawPlaces(found) {
  const scanned = found.scanned !== undefined ? `Looked at ${count(found.scanned)} messages.` : "";
  return sheet(
    "Where it is now",
    list(
      [
        {
          label: "Queue",
          cell: (p) => h("a", { href: link("queues", p.vhost, p.queue, "messages") }, p.queue),
        },
        { label: "Vhost", cell: (p) => p.vhost },
        { label: "State", cell: (p) => p.state },
        { label: "Broker's id", cell: (p) => h("span", { class: "mono" }, p.id) },
      ],
      found.places ?? [],
      "It is in no queue: acknowledged, expired, dropped, or never here.",
    ),
    h("p", { class: "soft small-text" }, scanned),
  );
}

function drawEvents(found) {
  const events = found.events ?? [];
  if (events.length === 0)
    return sheet(
      "What happened",
      h(
        "p",
        { class: "soft" },
        "Nothing is remembered of it. Queues with “x-remember” keep the life of their messages.",
      ),
    );
  return sheet(
    "What happened",
    h(
      "ol",
      { class: "timeline" },
      events.map((event) =>
        h(
          "li",
          null,
          h("time", null, event.time_ms ? time(event.time_ms) : "at an unknown time"),
          h(
            "div",
            null,
            h("strong", null, event.event),
            event.queue && [" in ", event.queue],
            event.reason && ` (${event.reason})`,
          ),
          h("div", { class: "soft small-text" }, others(event)),
        ),
      ),
    ),
  );
}

function others(event) {
  return Object.entries(event)
    .filter(([key, value]) => !SHOWN_APART.includes(key) && value !== null && value !== "")
    .map(([key, value]) => `${key}: ${plain(value)}`)
    .join(", ");
}
