/** Show the broker's explanation why messages are delivered or not. */

import { h } from "../dom.js";
import { count } from "../format.js";
import { connectionName } from "../connection_names.js";
import { link } from "../router.js";

/** @param {{moving: boolean, reasons: {code: string, text: string, details?: any}[]}} found */
export function explanation(found) {
  const isEmpty = found.reasons.some((reason) => reason.code === "empty");
  const kind = isEmpty ? "" : found.moving ? "good" : "warn";
  const opening = isEmpty
    ? "There are no messages."
    : found.moving
      ? "Messages are moving."
      : "No messages are moving.";
  return h(
    "div",
    { class: `note ${kind}`, "data-explanation": true },
    h("strong", null, opening),
    found.reasons.length > 0 &&
      h(
        "ul",
        null,
        found.reasons.map((reason) =>
          h("li", { "data-code": reason.code }, reason.text, holders(reason.details)),
        ),
      ),
  );
}

/** List the consumers that hold messages, with links to their connections. */
function holders(details) {
  const found = details?.holders ?? (details?.holder ? [details.holder] : []);
  if (!Array.isArray(found) || found.length === 0) return null;
  return h(
    "ul",
    null,
    found.slice(0, 10).map((holder) => h("li", null, holderText(holder))),
  );
}

function holds({ unacked, prefetch }) {
  return prefetch ? `${count(unacked)} of ${count(prefetch)} (prefetch)` : count(unacked);
}

/** @param {{connection?: string, channel?: number, consumer_tag?: string, user?: string}|null} holder */
export function holderText(holder) {
  if (!holder) return "–";
  return [
    holder.consumer_tag && [h("span", { class: "mono" }, holder.consumer_tag), " on "],
    holder.connection
      ? h(
          "a",
          { href: link("connections", holder.connection), title: holder.connection },
          connectionName(holder.connection),
        )
      : "a connection",
    holder.channel !== undefined && `, channel ${holder.channel}`,
    holder.user && `, user ${holder.user}`,
    holder.unacked !== undefined && `: ${holds(holder)} in flight`,
  ];
}
