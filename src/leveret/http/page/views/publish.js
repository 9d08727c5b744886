/** Publishing one message by hand. */

import { at, post } from "../api.js";

const PROPERTIES = [
  "content_type",
  "message_id",
  "correlation_id",
  "reply_to",
  "expiration",
  "priority",
  "type",
  "app_id",
  "timestamp",
];

/**
 * Fields of the form; without a routing key where that is given.
 * @param {string|null} routingKey
 * @returns {import("../parts/form.js").Field[]}
 */
export function publishFields(routingKey) {
  return [
    { name: "payload", label: "Payload", type: "area" },
    ...(routingKey === null
      ? []
      : [{ name: "routingKey", label: "Routing key", value: routingKey }]),
    {
      name: "encoding",
      label: "The payload is",
      type: "select",
      options: [
        ["string", "text"],
        ["base64", "base64"],
      ],
    },
    { name: "persistent", label: "Persistent: survives a restart", type: "check", value: true },
    {
      name: "headers",
      label: "Headers",
      type: "lines",
      names: ["x-delay", "x-deduplication-header"],
      hint: "One on each line: name: value.",
    },
    { name: "properties", label: "Properties", type: "lines", names: PROPERTIES },
  ];
}

/** Publishes, and says in a sentence where it went. */
export async function publishTo(vhost, exchange, values) {
  const properties = { delivery_mode: values.persistent ? 2 : 1, ...texts(values.properties) };
  if (Object.keys(values.headers).length > 0) properties.headers = values.headers;
  const answer = await post(at`/exchanges/${vhost}/${exchange || "amq.default"}/publish`, {
    properties,
    routing_key: values.routingKey,
    payload: values.payload,
    payload_encoding: values.encoding,
  });
  return answer.routed ? "Published, and it reached a queue." : "Published, but no queue took it.";
}

/** All properties but these are texts, also where they look like numbers. */
function texts(properties) {
  const numbers = ["priority", "timestamp", "delivery_mode"];
  return Object.fromEntries(
    Object.entries(properties).map(([name, value]) => [
      name,
      numbers.includes(name) || typeof value === "object" ? value : String(value),
    ]),
  );
}
