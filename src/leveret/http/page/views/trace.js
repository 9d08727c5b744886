/** Where one message is now, and what happened to it. */

import { get, query as queryOf } from "../api.js";
import { fill, h } from "../dom.js";
import { many, plain, time } from "../format.js";
import { Form } from "../parts/form.js";
import { head, list, sheet } from "../parts/list.js";
import { go, link } from "../router.js";
import { vhost } from "../session.js";
import { holderText } from "./explain.js";

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
  const gone = new AbortController();
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
    const all = { places: [], events: [], scanned: 0 };
    const wanted = id ? { id } : { message_id: messageId, vhost: vhost() };
    fill(result, h("p", { class: "soft" }, "Looking through the queues …"));
    try {
      let cursor = null;
      do {
        const found = await get(`/trace${queryOf({ ...wanted, cursor })}`, { signal: gone.signal });
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
    head({ title: "Trace a message", sub: "Through all states and dead-letterings" }),
    element,
    result,
  );
  return { title: "Trace", el, leave: () => gone.abort() };
}

function drawPlaces(found, isLooking) {
  const none = "It is in no queue: acknowledged, expired, dropped, or never here.";
  return sheet(
    "Where it is now",
    list(
      [
        { label: "Queue", cell: queue },
        { label: "Vhost", cell: (p) => p.vhost },
        { label: "State", cell: state },
        { label: "Broker's id", cell: (p) => h("span", { class: "mono" }, p.id) },
      ],
      found.places,
      isLooking ? "In none so far." : none,
    ),
    h(
      "p",
      { class: "soft small-text" },
      `Looked at ${many(found.scanned, "message")}${isLooking ? " so far …" : "."}`,
    ),
  );
}

function queue(place) {
  if (place.held_for) return `held back by the exchange ${place.held_for}`;
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
