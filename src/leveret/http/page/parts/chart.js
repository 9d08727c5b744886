/**
 * A line chart, drawn as SVG.
 *
 * Lines differ in dashes and colour, and the legend shows their values as text, so that the numbers
 * can be read without seeing the curves. The legend shows the values under the pointer. A value that
 * is not known yet is “–”, and has no curve.
 */

import { fill, h, svg } from "../dom.js";
import { byteRate, bytes } from "../format.js";

const HEIGHT = 176;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;
const LETTER = 6.6; // width of a letter of the axis labels
const RANGES = [
  [5, "5 minutes"],
  [60, "1 hour"],
];
let minutes = 5; // the range of all charts
/** @type {WeakMap<Element, Chart>} */
const charts = new WeakMap();

/** @typedef {{key: string, label: string}} Line */

export class Chart {
  /**
   * @param {string} label description for screen readers
   * @param {Line[]} lines at most four
   * @param {(value: number) => string} format
   */
  constructor(label, lines, format) {
    this.lines = lines;
    this.format = format;
    this.label = label;
    this.history = null;
    this.pointer = null;
    this.width = 600;
    this.left = 52;
    this.canvas = svg("svg", { role: "img", "aria-label": label });
    this.legend = h("dl", { class: "legend" });
    this.range = h(
      "select",
      { "aria-label": `Time range: ${label}`, class: "range", value: minutes },
      RANGES.map(([value, text]) => h("option", { value }, text)),
    );
    this.range.onchange = () => {
      minutes = Number(this.range.value);
      for (const shown of document.querySelectorAll(".chart")) charts.get(shown)?.draw();
    };
    this.el = h("figure", { class: "chart" }, this.canvas, this.range, this.legend);
    charts.set(this.el, this);
    this.canvas.onpointermove = (event) => this.point(event.offsetX);
    this.canvas.onpointerleave = () => this.point(null);
    new ResizeObserver(([entry]) => {
      this.width = Math.max(entry.contentRect.width, 200);
      this.draw();
    }).observe(this.canvas);
  }

  /** @param {import("../rate_history.js").History} history */
  update(history) {
    this.history = history;
    this.draw();
  }

  point(x) {
    this.pointer = x;
    this.draw();
  }

  draw() {
    if (!this.history || !this.el.isConnected) return;
    this.range.value = String(minutes);
    const end = this.history.points.at(-1)?.at ?? performance.now();
    const points = this.history.points.filter((point) => point.at >= end - minutes * 60000);
    const span = Math.max(end - (points[0]?.at ?? end), 30000);
    const top = ceiling(
      Math.max(1, ...points.flatMap((p) => this.lines.map((l) => p.values[l.key] ?? 0))),
      this.format === bytes || this.format === byteRate,
    );
    this.left = 14 + LETTER * Math.max(...[top, top / 2].map((v) => this.format(v).length));
    const x = (at) => this.left + (this.width - this.left - RIGHT) * (1 - (end - at) / span);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const shown = this.shown(points, x);
    this.canvas.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    fill(
      this.canvas,
      this.grid(top, y, span),
      shown &&
        this.pointer !== null &&
        svg("line", {
          class: "cursor",
          x1: x(shown.at),
          x2: x(shown.at),
          y1: TOP,
          y2: HEIGHT - BOTTOM,
        }),
      this.lines.map((line, i) => curve(points, line.key, i, x, y)),
    );
    this.drawLegend(shown);
  }

  /** Return the point under the pointer, or the newest. */
  shown(points, x) {
    if (this.pointer === null) return points.at(-1);
    return points.reduce(
      (best, point) =>
        Math.abs(x(point.at) - this.pointer) < Math.abs(x(best.at) - this.pointer) ? point : best,
      points[0],
    );
  }

  grid(top, y, span) {
    const lines = [0, top / 2, top].map((value) => [
      svg("line", {
        class: "grid",
        x1: this.left,
        x2: this.width - RIGHT,
        y1: y(value),
        y2: y(value),
      }),
      svg(
        "text",
        { class: "axis", x: this.left - 8, y: y(value) + 4, "text-anchor": "end" },
        this.format(value),
      ),
    ]);
    const ago =
      span < 90000 ? `${Math.round(span / 1000)} s ago` : `${Math.round(span / 60000)} min ago`;
    return [
      lines,
      svg("text", { class: "axis", x: this.left, y: HEIGHT - 5 }, ago),
      svg(
        "text",
        { class: "axis", x: this.width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" },
        "now",
      ),
    ];
  }

  drawLegend(shown) {
    const values = this.lines.map((line) => this.format(shown?.values[line.key]));
    fill(
      this.legend,
      this.lines.map((line, i) =>
        h(
          "div",
          { class: `series-${i + 1}` },
          svg(
            "svg",
            { "aria-hidden": "true", viewBox: "0 0 28 8" },
            svg("line", { x1: 0, x2: 28, y1: 4, y2: 4 }),
          ),
          h("dt", null, line.label),
          h("dd", { "data-rate": line.key }, values[i]),
        ),
      ),
    );
    const said = this.lines.map((line, i) => `${line.label} ${values[i]}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.label}: ${said}`);
  }
}

function curve(all, key, index, x, y) {
  const points = all.filter((point) => point.values[key] !== undefined);
  if (points.length === 0) return null;
  if (points.length === 1) {
    return svg("circle", {
      class: `dot series-${index + 1}`,
      cx: x(points[0].at),
      cy: y(points[0].values[key]),
      r: 3,
    });
  }
  const path = points.map(
    (p, i) => `${i ? "L" : "M"}${x(p.at).toFixed(1)} ${y(p.values[key]).toFixed(1)}`,
  );
  return svg("path", { class: `curve series-${index + 1}`, d: path.join("") });
}

/** Return the next round number: 1, 2, 5, 10, 20 …; for bytes, as many of their unit. */
function ceiling(value, isBytes) {
  const unit = isBytes ? 1024 ** Math.floor(Math.log2(value) / 10) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 5, 10].map((step) => step * power * unit).find((step) => step >= value) ?? value;
}
