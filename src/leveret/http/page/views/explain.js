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
  const shown = new Set(); // consumers that an earlier reason lists
  return h(
    "div",
    { class: `note ${kind}`, "data-explanation": true },
    h("strong", null, opening),
    found.reasons.length > 0 &&
      h(
        "ul",
        null,
        found.reasons.map((reason) =>
          h("li", { "data-code": reason.code }, reason.text, holders(reason.details, shown)),
        ),
      ),
  );
}

/** List the consumers that hold messages, with links to their connections. Each is listed once. */
function holders(details, shown) {
  const all = details?.holders ?? (details?.holder ? [details.holder] : []);
  const found = all.filter((holder) => !shown.has(consumerKey(holder))).slice(0, 10);
  if (found.length === 0) return null;
  for (const holder of found) shown.add(consumerKey(holder));
  return h(
    "ul",
    null,
    found.map((holder) => h("li", null, holderText(holder))),
  );
}

function consumerKey({ connection, channel, consumer_tag }) {
  return JSON.stringify([connection, channel, consumer_tag]);
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
