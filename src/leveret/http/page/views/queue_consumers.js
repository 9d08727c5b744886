/** The consumers of a queue, and its messages in flight. */

import { apiPath, get } from "../api.js";
import { channelName } from "../connection_names.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration, plain } from "../format.js";
import { badge, list, sheet } from "../parts/elements.js";
import { link } from "../router.js";
import { holderText } from "./explain.js";

const HELD_MAX = 200;

export function consumersTab({ vhost, name }) {
  const consumers = h("div");
  const held = h("div");
  const el = h(
    "div",
    { class: "stack" },
    sheet("Consumers", consumers),
    sheet("In flight (delivered, not acknowledged)", held),
  );

  async function refresh(queue, signal) {
    const unacked = await get(
      apiPath`/queues/${vhost}/${name}/unacked` + `?limit=${HELD_MAX}`,
      { signal },
    );
    fill(consumers, drawConsumers(queue.consumer_details));
    fill(held, drawHeld(unacked));
  }
  return { el, refresh };
}

function drawConsumers(consumers) {
  return list(
    [
      { label: "Tag", cell: (c) => h("span", { class: "mono" }, c.consumer_tag) },
      { label: "Channel", cell: (c) => channel(c.channel_details) },
      {
        label: "Prefetch",
        number: true,
        cell: (c) => (c.prefetch_count ? count(c.prefetch_count) : "no limit"),
      },
      { label: "Acks", cell: (c) => (c.ack_required ? "manual" : "automatic") },
      { label: "State", cell: (c) => state(c) },
      {
        label: "Arguments",
        cell: (c) =>
          Object.entries(c.arguments ?? {})
            .map(([k, v]) => `${k}: ${plain(v)}`)
            .join(", ") || "–",
      },
    ],
    consumers,
    "No consumers.",
  );
}

function channel(details) {
  if (!details?.name) return "–";
  return h(
    "a",
    { href: link("channels", details.name), title: details.name },
    channelName(details.name),
  );
}

function state(consumer) {
  if (consumer.active === false) return badge(consumer.activity_status ?? "waiting", "warn");
  return [badge("active", "good"), consumer.exclusive && " exclusive"];
}

function drawHeld(found) {
  return [
    list(
      [
        {
          label: "Message",
          cell: (m) => h("a", { href: `${link("trace")}?id=${encodeURIComponent(m.id)}` }, m.id),
        },
        { label: "Held by", cell: (m) => holderText(m.holder) },
        { label: "Duration", number: true, cell: (m) => duration(m.held_ms ?? m.age_ms) },
        { label: "Deliveries", number: true, cell: (m) => count(m.deliveries) },
        { label: "Routing key", cell: (m) => h("span", { class: "mono" }, m.routing_key) },
        { label: "Size", number: true, cell: (m) => bytes(m.payload_bytes) },
      ],
      found.items,
      "No messages in flight.",
    ),
    found.cursor && h("p", { class: "soft" }, `Only the first ${found.items.length} are shown.`),
  ];
}
