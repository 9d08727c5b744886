/** The form to publish one message. */

import { apiPath, post } from "../api.js";

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
 * Return the fields of the form. If `routingKey` is null, there is no field for it.
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
      label: "Payload encoding",
      type: "select",
      options: [
        ["string", "text"],
        ["base64", "base64"],
      ],
    },
    { name: "persistent", label: "Persistent (survives a restart)", type: "check", value: true },
    {
      name: "headers",
      label: "Headers",
      type: "lines",
      names: ["x-delay", "x-deduplication-header"],
      hint: "One name: value per line.",
    },
    { name: "properties", label: "Properties", type: "lines", names: PROPERTIES },
  ];
}

/** Publish a message. Resolves to a sentence that says whether it was routed. */
export async function publishTo(vhost, exchange, values) {
  const properties = { delivery_mode: values.persistent ? 2 : 1, ...propertiesAsText(values.properties) };
  if (Object.keys(values.headers).length > 0) properties.headers = values.headers;
  const answer = await post(apiPath`/exchanges/${vhost}/${exchange || "amq.default"}/publish`, {
    properties,
    routing_key: values.routingKey,
    payload: values.payload,
    payload_encoding: values.encoding,
  });
  return answer.routed ? "Published and routed to a queue." : "Published, but not routed to any queue.";
}

/** Turn all properties except these into text, even if they look like numbers. */
function propertiesAsText(properties) {
  const numbers = ["priority", "timestamp", "delivery_mode"];
  return Object.fromEntries(
    Object.entries(properties).map(([name, value]) => [
      name,
      numbers.includes(name) || typeof value === "object" ? value : String(value),
    ]),
  );
}
