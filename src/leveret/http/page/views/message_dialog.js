/** The dialog of one message: payload, properties, headers, state, and the explanation of it. */

import { apiPath, get } from "../api.js";
import { fill, h } from "../dom.js";
import { duration, exchangeName, time } from "../format.js";
import { openDialog } from "../parts/dialog.js";
import { facts, tableFacts } from "../parts/elements.js";
import { link } from "../router.js";
import { explanation, holderText } from "./explain.js";
import { payloadSection } from "./payload.js";

/** @param {{vhost: string, name: string, message: any}} what */
export function showMessage({ vhost, name, message }) {
  const why = h("div", null, h("p", { class: "soft" }, "Loading the explanation …"));
  const body = payloadSection(message, apiPath`/queues/${vhost}/${name}/messages/${message.id}/body`);
  openDialog({
    title: message.properties?.message_id
      ? `Message ${message.properties.message_id}`
      : `Message in “${name}”`,
    wide: true,
    body: h("div", { class: "stack" }, why, body.el, messageFacts(message)),
    footer: h(
      "footer",
      null,
      message.properties?.message_id &&
        h(
          "a",
          {
            class: "button",
            href: `${link("trace")}?message_id=${encodeURIComponent(message.properties.message_id)}`,
          },
          "Trace",
        ),
      body.buttons,
    ),
  });
  explain(vhost, name, message, why);
}

async function explain(vhost, name, message, host) {
  try {
    fill(
      host,
      explanation(await get(apiPath`/queues/${vhost}/${name}/messages/${message.id}/explain`)),
    );
  } catch (fault) {
    fill(host, h("p", { class: "note bad" }, `No explanation. ${fault.message}`));
  }
}

/** Make the sections below the payload, for messages of queues and streams. */
export function messageFacts(message) {
  const { headers, ...properties } = message.properties ?? {};
  return [
    h(
      "section",
      { class: "stack" },
      h("h3", null, "Details"),
      facts([
        ["Exchange", exchangeName(message.exchange)],
        ["Routing key", h("span", { class: "mono" }, message.routing_key)],
        ["Broker id", message.id && h("span", { class: "mono" }, message.id)],
        ["Offset", message.offset],
        ["Received", message.timestamp_ms && time(message.timestamp_ms)],
        ["State", message.state],
        ["Age", typeof message.age_ms === "number" ? duration(message.age_ms) : null],
        ["Due", message.due_at_ms && time(message.due_at_ms)],
        ["Held by", message.holder && holderText(message.holder)],
        [
          "Redelivered",
          message.redelivered === undefined ? null : message.redelivered ? "yes" : "no",
        ],
      ]),
    ),
    h("section", { class: "stack" }, h("h3", null, "Properties"), tableFacts(properties)),
    h("section", { class: "stack" }, h("h3", null, "Headers"), tableFacts(headers)),
  ];
}
