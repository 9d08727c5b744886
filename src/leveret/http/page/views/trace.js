/** Find one message in all queues, and show its recorded events. */

import { get, queryString } from "../api.js";
import { loadConnectionNames } from "../connection_names.js";
import { fill, h } from "../dom.js";
import { pluralize, plain, time } from "../format.js";
import { Form } from "../parts/form.js";
import { head, list, sheet } from "../parts/elements.js";
import { goTo, link } from "../router.js";
import { vhost } from "../session.js";
import { holderText } from "./explain.js";

const SHOWN_SEPARATELY = ["time_ms", "event", "queue", "reason", "vhost", "id", "state"];

export function view({ query }) {
  const form = new Form([
    {
      name: "message_id",
      label: "Message id",
      value: query.get("message_id") ?? "",
      hint: "The message_id property set by the publisher.",
    },
    {
      name: "id",
      label: "Or broker id",
      value: query.get("id") ?? "",
      hint: "Shown in the details of a message.",
    },
  ]);
  form.control("message_id").dataset.search = "";
  const leaving = new AbortController();
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
    else goTo(wanted);
  };

  async function trace({ message_id: messageId, id }) {
    if (!messageId && !id) return;
    const all = { places: [], events: [], scanned: 0 };
    const wanted = id ? { id } : { message_id: messageId, vhost: vhost() };
    fill(result, h("p", { class: "soft" }, "Searching the queues …"));
    try {
      await loadConnectionNames(leaving.signal);
      let cursor = null;
      do {
        const found = await get(`/trace${queryString({ ...wanted, cursor })}`, { signal: leaving.signal });
        all.places.push(...found.places);
        all.events.push(...found.events);
        all.scanned += found.scanned;
        ({ cursor } = found);
        fill(result, drawPlaces(all, cursor !== null), drawEvents(all));
      } while (cursor);
    } catch (fault) {
      if (fault.name === "AbortError") return;
      fill(result, h("p", { class: "note bad" }, fault.message));
    }
  }
  trace({ message_id: query.get("message_id"), id: query.get("id") });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Trace a message", sub: "Current location and history" }),
    element,
    result,
  );
  return { title: "Trace", el, leave: () => leaving.abort() };
}

function drawPlaces(found, isSearching) {
  const none = "The message is in no queue. It was acknowledged, expired or dropped, or it never existed.";
  return sheet(
    "Current location",
    list(
      [
        { label: "Queue", cell: queue },
        { label: "Vhost", cell: (p) => p.vhost },
        { label: "State", cell: state },
        { label: "Broker id", cell: (p) => h("span", { class: "mono" }, p.id) },
      ],
      found.places,
      isSearching ? "Not found so far." : none,
    ),
    h(
      "p",
      { class: "soft small-text" },
      `${pluralize(found.scanned, "message")} scanned${isSearching ? " so far …" : "."}`,
    ),
  );
}

function queue(place) {
  if (place.held_for) return `delayed by exchange ${place.held_for}`;
  const isStream = place.type === "stream";
  const href = isStream
    ? link("streams", place.vhost, place.queue)
    : link("queues", place.vhost, place.queue, "messages");
  return h("a", { href }, place.queue);
}

function state(place) {
  if (place.due_at_ms) return `scheduled for ${time(place.due_at_ms)}`;
  if (place.holder) return ["in flight, held by ", holderText(place.holder)];
  return place.state;
}

function drawEvents(found) {
  const events = [...found.events].sort((a, b) => (a.time_ms ?? 0) - (b.time_ms ?? 0));
  if (events.length === 0)
    return sheet(
      "History",
      h(
        "p",
        { class: "soft" },
        "No recorded events. Queues with “x-remember” record the events of their messages.",
      ),
    );
  return sheet(
    "History",
    h(
      "ol",
      { class: "timeline" },
      events.map((event) =>
        h(
          "li",
          null,
          h("time", null, event.time_ms ? time(event.time_ms) : "unknown time"),
          h(
            "div",
            null,
            h("strong", null, event.event),
            event.queue && [" in ", event.queue],
            event.reason && ` (${event.reason})`,
          ),
          h("div", { class: "soft small-text" }, otherFields(event)),
        ),
      ),
    ),
  );
}

function otherFields(event) {
  return Object.entries(event)
    .filter(([key, value]) => !SHOWN_SEPARATELY.includes(key) && value !== null && value !== "")
    .map(([key, value]) => `${key}: ${plain(value)}`)
    .join(", ");
}
