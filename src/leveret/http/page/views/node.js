/** The node: memory, disk, open files and connections over the last hour; parts of the memory. */

import { apiPath, get } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { Chart } from "../parts/chart.js";
import { badge, facts, figures, head, sheet } from "../parts/elements.js";
import { rateHistory } from "../rate_history.js";

const MEMORY_LINES = [
  { key: "memory", label: "Process" },
  { key: "memory_held", label: "Messages and buffers" },
];
const DISK_LINES = [{ key: "disk_free", label: "Free" }];
const FILE_LINES = [
  { key: "files", label: "Open files" },
  { key: "sockets", label: "Connections" },
];

export function view() {
  const memory = new Chart("Memory", MEMORY_LINES, bytes);
  const disk = new Chart("Free disk space", DISK_LINES, bytes);
  const files = new Chart("Open files", FILE_LINES, count);
  const diskSheet = sheet("Free disk space", disk.el);
  const sub = h("div", { class: "row" });
  const totals = h("div");
  const parts = h("div");
  const about = h("div");
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Node", sub }),
    h("section", { class: "sheet", "aria-label": "Totals" }, totals),
    h(
      "div",
      { class: "columns" },
      sheet("Memory", memory.el),
      diskSheet,
      sheet("Open files and connections", files.el),
    ),
    h("div", { class: "columns" }, sheet("What the memory is used for", parts), sheet("Details", about)),
  );

  async function refresh(signal) {
    const [listed] = await get("/nodes?columns=name", { signal });
    const node = await get(apiPath`/nodes/${listed.name}` + "?memory=true", { signal });
    const history = rateHistory("node");
    await history.begin(() => get("/history", { signal }));
    history.measure({
      memory: node.mem_used,
      memory_held: node.memory?.queue_procs,
      disk_free: node.disk_free,
      files: node.fd_used,
      sockets: node.sockets_used,
    });
    diskSheet.hidden = !(node.disk_free > 0); // a broker in memory knows of no disk
    for (const chart of [memory, disk, files]) chart.update(history);
    fill(sub, node.name, alarm(node));
    fill(totals, drawTotals(node));
    fill(parts, drawParts(node));
    fill(about, drawFacts(node));
  }
  return { title: "Node", el, refresh };
}

function alarm(node) {
  return [
    node.mem_alarm && badge("memory alarm", "bad"),
    node.disk_free_alarm && badge("disk alarm", "bad"),
    !node.mem_alarm && !node.disk_free_alarm && badge("no alarm", "good"),
  ];
}

function drawTotals(node) {
  return figures([
    ["Uptime", duration(node.uptime)],
    ["Memory", bytes(node.mem_used)],
    ["Free disk", node.disk_free > 0 ? bytes(node.disk_free) : "–"],
    ["Open files", count(node.fd_used)],
    ["Connections", count(node.sockets_used)],
  ]);
}

/** Draw the parts of the memory. The alarm compares the first one with its limit. */
function drawParts(node) {
  const held = node.memory?.queue_procs ?? 0;
  const rest = Math.max(node.mem_used - held, 0);
  const share = (value) => ({ flex: String(value / Math.max(held + rest, 1)) });
  return [
    h(
      "div",
      { class: "states", "aria-hidden": "true" },
      h("span", { class: "buffers", style: share(held) }),
      h("span", { class: "program", style: share(rest) }),
    ),
    figures([
      [[h("span", { class: "key buffers", "aria-hidden": "true" }), "Messages and buffers"], bytes(held)],
      [[h("span", { class: "key program", "aria-hidden": "true" }), "Program and definitions"], bytes(rest)],
    ]),
    h(
      "p",
      { class: "soft small-text" },
      `The memory alarm begins when messages and buffers use ${bytes(node.mem_limit)}.`,
    ),
  ];
}

function drawFacts(node) {
  return facts([
    ["Disk alarm below", bytes(node.disk_free_limit)],
    ["Maximum open files", count(node.fd_total)],
    ["Processors", node.processors],
    ["Process id", node.os_pid],
    ["Data directory", node.db_dir && h("span", { class: "mono" }, node.db_dir)],
  ]);
}
