/** What leads to a queue. */

import { at, del, get } from "../api.js";
import { fill, h } from "../dom.js";
import { exchangeName, plain } from "../format.js";
import { button, list, sheet } from "../parts/list.js";
import { attempt } from "../parts/notice.js";
import { exchangeLink } from "../router.js";
import { bind } from "./queue_actions.js";

export function bindingsTab({ vhost, name, again }) {
  const bindings = h("div");
  const el = h(
    "div",
    { class: "stack" },
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Bindings to this queue"),
        button("Bind", () => bind({ vhost, destination: name, kind: "q" }, again)),
      ),
      bindings,
    ),
  );

  async function refresh(queue, signal) {
    const found = await get(at`/queues/${vhost}/${name}/bindings`, { signal });
    fill(bindings, drawBindings(found, again, "source"));
  }
  return { el, refresh };
}

/** Bindings as a table; `side` is the end of them that is shown. */
export function drawBindings(found, again, side) {
  const unbind = (b) =>
    attempt(async () => {
      const letter = b.destination_type === "queue" ? "q" : "e";
      await del(
        at`/bindings/${b.vhost}/e/${b.source}/${letter}/${b.destination}/${b.properties_key}`,
      );
      again();
    }, "Unbound.");
  return list(
    [
      side === "source"
        ? {
            label: "From exchange",
            cell: (b) => h("a", { href: exchangeLink(b.vhost, b.source) }, exchangeName(b.source)),
          }
        : { label: "To", cell: (b) => [`${b.destination_type} `, target(b)] },
      { label: "Routing key", cell: (b) => h("span", { class: "mono" }, b.routing_key || "–") },
      {
        label: "Arguments",
        cell: (b) =>
          Object.entries(b.arguments ?? {})
            .map(([k, v]) => `${k}: ${plain(v)}`)
            .join(", ") || "–",
      },
      {
        label: "",
        cell: (b) => b.source !== "" && button("Unbind", () => unbind(b), "small danger"),
      },
    ],
    found,
    "There are no bindings.",
  );
}

function target(b) {
  const href =
    b.destination_type === "queue"
      ? `#/queues/${encodeURIComponent(b.vhost)}/${encodeURIComponent(b.destination)}`
      : exchangeLink(b.vhost, b.destination);
  return h("a", { href }, b.destination);
}
