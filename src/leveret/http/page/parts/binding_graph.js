/**
 * The graph of an exchange: its bindings, and the bindings of the exchanges that they lead to.
 *
 * Columns from left to right: source exchanges, the exchange itself, its targets, and the targets of
 * target exchanges. Every box is a link. A table beside the graph lists the same bindings.
 */

import { fill, h, svg } from "../dom.js";
import { exchangeName } from "../format.js";
import { exchangeLink, link } from "../router.js";

const BOX_W = 176;
const BOX_H = 42;
const GAP_X = 140;
const GAP_Y = 16;
const BOXES_MAX = 40; // per column
export const DEPTH_MAX = 3;
const SCALE_MIN = 0.8; // in a narrow window; below this size the graph scrolls

/** @typedef {{vhost: string, source: string, destination: string, destination_type: string,
 *   routing_key: string, arguments: Object<string, any>}} Binding */

/**
 * @param {HTMLElement} host
 * @param {{vhost: string, name: string, bindings: Binding[],
 *   reached?: {queues: Set<string>, exchanges: Set<string>}}} what `bindings` are all bindings of the vhost
 */
export function drawBindingGraph(host, { vhost, name, bindings, reached }) {
  const layout = arrange(name, bindings);
  const height =
    Math.max(...layout.columns.map((column) => column.length)) * (BOX_H + GAP_Y) + GAP_Y;
  const width = layout.columns.length * (BOX_W + GAP_X) - GAP_X + 8;
  const places = placeBoxes(layout.columns, height);
  const isReached = (node) =>
    reached?.[node.kind === "queue" ? "queues" : "exchanges"].has(node.name) ?? false;
  const edges = layout.edges.map((edge) =>
    drawEdge(edge, places, reached && isReached(edge.to) && isOnPath(edge.from, name, reached)),
  );
  const boxes = layout.columns
    .flat()
    .map((node) => drawBox(node, places.get(node.id), vhost, isReached(node)));
  const said = `Bindings of ${exchangeName(name)}: ${layout.edges.length} drawn`;
  const size = { width: `${width}px`, "min-width": `${Math.round(width * SCALE_MIN)}px` };
  const picture = svg(
    "svg",
    { style: size, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": said },
    edges,
    layout.edges.map((edge) => drawLabel(edge, places)),
    boxes,
  );
  const isNew = host.childElementCount === 0;
  fill(
    host,
    h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": said }, picture),
    layout.left > 0 &&
      h("p", { class: "soft" }, `${layout.left} more bindings are not drawn. The table lists all of them.`),
  );
  // If the graph is wider than the window, scroll to the exchange itself. The view is in the page at
  // the next frame.
  if (isNew) {
    const x = places.get(`exchange:${name}`).x * SCALE_MIN - 8;
    requestAnimationFrame(() => host.firstElementChild.scrollTo({ left: x }));
  }
}

function isOnPath(node, name, reached) {
  return node.name === name || reached.exchanges.has(node.name);
}

/** Arrange the boxes in columns and collect the edges between them. */
function arrange(name, bindings) {
  const nodes = new Map();
  let left = 0;
  const nodeOf = (kind, nodeName) => {
    const id = `${kind}:${nodeName}`;
    if (!nodes.has(id)) nodes.set(id, { id, kind, name: nodeName });
    return nodes.get(id);
  };
  const centre = nodeOf("exchange", name);
  const sources = [];
  const edges = [];
  for (const b of bindings) {
    if (b.destination_type !== "exchange" || b.destination !== name || b.source === name) continue;
    const from = nodeOf("exchange", b.source);
    if (!sources.includes(from)) sources.push(from);
    edges.push({ from, to: centre, label: labelOf(b) });
  }
  const placed = new Set([centre.id, ...sources.map((node) => node.id)]);
  const columns = sources.length ? [sources, [centre]] : [[centre]];
  let wave = [centre];
  for (let depth = 0; depth < DEPTH_MAX && wave.length > 0; depth += 1) {
    const next = [];
    for (const from of wave) {
      for (const b of bindings) {
        if (b.source !== from.name) continue;
        const to = nodeOf(b.destination_type, b.destination);
        if (!placed.has(to.id)) {
          if (next.length >= BOXES_MAX) {
            left += 1;
            continue;
          }
          placed.add(to.id);
          next.push(to);
        }
        edges.push({ from, to, label: labelOf(b) });
      }
    }
    if (next.length > 0) columns.push(next);
    wave = next.filter((node) => node.kind === "exchange");
  }
  return { columns, edges: joinEdges(edges), left };
}

/** Join several bindings between the same two boxes to one edge with all labels. */
function joinEdges(edges) {
  const found = new Map();
  for (const edge of edges) {
    const key = `${edge.from.id}\n${edge.to.id}`;
    if (found.has(key)) found.get(key).labels.push(edge.label);
    else found.set(key, { ...edge, labels: [edge.label] });
  }
  return [...found.values()];
}

function labelOf(binding) {
  const pairs = Object.entries(binding.arguments ?? {});
  if (pairs.length > 0) return pairs.map(([key, value]) => `${key}=${value}`).join(" ");
  return binding.routing_key === "" ? "(no key)" : binding.routing_key;
}

function placeBoxes(columns, height) {
  const places = new Map();
  for (const [i, column] of columns.entries()) {
    const used = column.length * (BOX_H + GAP_Y) - GAP_Y;
    for (const [j, node] of column.entries()) {
      places.set(node.id, {
        x: 4 + i * (BOX_W + GAP_X),
        y: (height - used) / 2 + j * (BOX_H + GAP_Y),
      });
    }
  }
  return places;
}

function drawEdge(edge, places, isReached) {
  const from = places.get(edge.from.id);
  const to = places.get(edge.to.id);
  const [x1, y1, x2, y2] = [from.x + BOX_W, from.y + BOX_H / 2, to.x, to.y + BOX_H / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2);
  return svg("path", {
    class: isReached ? "edge reached" : "edge",
    d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
  });
}

/** Draw the label near the target, where the edges of one box are apart. */
function drawLabel(edge, places) {
  const to = places.get(edge.to.id);
  const more = edge.labels.length > 1 ? ` +${edge.labels.length - 1}` : "";
  return svg(
    "text",
    { class: "label", x: to.x - 10, y: to.y + BOX_H / 2 - 5, "text-anchor": "end" },
    cut(edge.labels[0], 16) + more,
    svg("title", null, edge.labels.join("\n")),
  );
}

function drawBox(node, place, vhost, isReached) {
  const href =
    node.kind === "queue" ? link("queues", vhost, node.name) : exchangeLink(vhost, node.name);
  const shown = node.kind === "queue" ? node.name : exchangeName(node.name);
  const kind = isReached ? `${node.kind}, reached` : node.kind;
  return svg(
    "a",
    { href },
    svg(
      "g",
      {
        class: `box ${node.kind} ${isReached ? "reached" : ""}`,
        transform: `translate(${place.x} ${place.y})`,
      },
      svg("rect", { width: BOX_W, height: BOX_H, rx: node.kind === "queue" ? 6 : 21 }),
      svg("text", { x: 14, y: 18 }, cut(shown, 20)),
      " ", // between two words for screen readers
      svg("text", { class: "kind", x: 14, y: 33 }, kind),
      svg("title", null, `${shown} (${kind})`),
    ),
  );
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
