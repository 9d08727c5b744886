/** The bindings of a queue. */

import { apiPath, del, get } from "../api.js";
import { fill, h } from "../dom.js";
import { exchangeName, plain } from "../format.js";
import { confirm } from "../parts/dialog.js";
import { button, list, sheet } from "../parts/elements.js";
import { attempt } from "../parts/notice.js";
import { exchangeLink } from "../router.js";
import { bind } from "./queue_actions.js";

export function bindingsTab({ vhost, name, reload }) {
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
        button("Bind", () => bind({ vhost, destination: name, kind: "q" }, reload)),
      ),
      bindings,
    ),
  );

  async function refresh(queue, signal) {
    const found = await get(apiPath`/queues/${vhost}/${name}/bindings`, { signal });
    fill(bindings, drawBindings(found, reload, "source"));
  }
  return { el, refresh };
}

/** Draw bindings as a table. `side` is the end that is shown: "source" or "destination". */
export function drawBindings(found, reload, side) {
  const unbind = async (b) => {
    const key = b.routing_key ? ` with key “${b.routing_key}”` : "";
    const isSure = await confirm({
      title: "Remove 1 binding?",
      text: `“${b.destination}” gets no more messages from “${b.source}”${key}.`,
      verb: "Unbind",
    });
    if (!isSure) return;
    const letter = b.destination_type === "queue" ? "q" : "e";
    const path = apiPath`/bindings/${b.vhost}/e/${b.source}/${letter}/${b.destination}/${b.properties_key}`;
    await attempt(() => del(path), "The binding is removed.");
    reload();
  };
  return list(
    [
      side === "source"
        ? {
            label: "Source exchange",
            cell: (b) => h("a", { href: exchangeLink(b.vhost, b.source) }, exchangeName(b.source)),
          }
        : { label: "Destination", cell: (b) => [`${b.destination_type} `, target(b)] },
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
    "No bindings.",
  );
}

function target(b) {
  const href =
    b.destination_type === "queue"
      ? `#/queues/${encodeURIComponent(b.vhost)}/${encodeURIComponent(b.destination)}`
      : exchangeLink(b.vhost, b.destination);
  return h("a", { href }, b.destination);
}
