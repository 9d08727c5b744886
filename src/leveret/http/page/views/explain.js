/** Why something moves or does not, in the broker's own sentences. */

import { h } from "../dom.js";
import { count } from "../format.js";
import { link } from "../router.js";

/** @param {{moving: boolean, reasons: {code: string, text: string, details?: any}[]}|null} found */
export function explanation(found) {
  if (found === null) return h("p", { class: "soft" }, "The broker could not say.");
  const kind = found.moving ? "good" : found.reasons.every((r) => r.code === "empty") ? "" : "warn";
  const opening = found.moving
    ? "It moves."
    : kind === ""
      ? "There is nothing to move."
      : "It does not move.";
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

/** Who holds messages, with the way to their connections. */
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
  return prefetch ? `${count(unacked)} of at most ${count(prefetch)}` : count(unacked);
}

/** @param {{connection?: string, channel?: number, consumer_tag?: string, user?: string}|null} holder */
export function holderText(holder) {
  if (!holder) return "–";
  return [
    holder.consumer_tag && [h("span", { class: "mono" }, holder.consumer_tag), " on "],
    holder.connection
      ? h("a", { href: link("connections", holder.connection) }, holder.connection)
      : "a connection",
    holder.channel !== undefined && `, channel ${holder.channel}`,
    holder.user && `, user ${holder.user}`,
    holder.unacked !== undefined && `: holds ${holds(holder)}`,
  ];
}
