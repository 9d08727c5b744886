/**
 * Rates and levels over time: first what the broker has kept, then what the page has seen.
 *
 * Rates are computed from the broker's counters. Each history is kept under a name, so that leaving
 * a view and coming back shows the same chart.
 */

import { unlessRefused } from "./api.js";

const POINTS_MAX = 1600; // an hour of polling, and the hour before it
const HISTORIES_MAX = 100;

/** @typedef {{at: number, values: Object<string, number>}} Point */

/** @type {Map<string, History>} */
const histories = new Map();

/** Rates of one object, such as a queue. */
export class History {
  constructor() {
    /** @type {Point[]} */
    this.points = [];
    this.last = null;
  }

  /**
   * Begin with the samples of the broker, once. Without them the history begins now.
   * @param {() => Promise<any>} ask resolves to an answer of `/history`
   */
  async begin(ask) {
    this.begun ??= unlessRefused(ask()).then((found) => found && this.addSamples(found));
    try {
      await this.begun;
    } catch (fault) {
      this.begun = null;
      throw fault;
    }
  }

  addSamples({ now_ms: nowMs, counters, gauges, rows }) {
    const points = [];
    let before = null;
    for (const [timeMs, ...numbers] of rows) {
      const values = {};
      counters.forEach((name, i) => {
        const grown = before ? numbers[i] - before.numbers[i] : -1;
        if (grown >= 0) values[name] = (grown * 1000) / Math.max(timeMs - before.timeMs, 1);
      });
      gauges.forEach((name, i) => (values[name] = numbers[counters.length + i]));
      points.push({ at: performance.now() - (nowMs - timeMs), values });
      before = { timeMs, numbers };
    }
    if (before && !this.last) {
      const named = Object.fromEntries(counters.map((name, i) => [name, before.numbers[i]]));
      this.last = { at: points.at(-1).at, counters: named };
    }
    this.points.unshift(...points);
  }

  /**
   * Add a point: the rates since the last counters, and values that are not counters.
   * @param {Object<string, number>} counters
   * @param {Object<string, number>} rates reported by the broker, for the first point
   * @param {Object<string, number>} [gauges]
   */
  count(counters, rates, gauges = {}) {
    const at = performance.now();
    const values = { ...gauges };
    const seconds = this.last ? (at - this.last.at) / 1000 : 0;
    if (this.last && seconds < 0.2) return; // two views loaded it at the same time
    for (const [name, value] of Object.entries(counters)) {
      const before = this.last?.counters[name];
      // A counter that went back means that the broker has restarted.
      const isKnown = before !== undefined && value >= before;
      const found = isKnown ? (value - before) / seconds : rates[name];
      if (found !== undefined) values[name] = found;
    }
    this.last = { at, counters };
    this.add(at, values);
  }

  /** Add a point of values that are not counters. */
  measure(values) {
    this.add(performance.now(), values);
  }

  add(at, values) {
    this.points.push({ at, values });
    if (this.points.length > POINTS_MAX) this.points.shift();
  }

  /** Return the newest value of a name. */
  now(name) {
    return this.points.at(-1)?.values[name];
  }
}

/** Return the history under a name; create it if it is new. */
export function rateHistory(name) {
  let found = histories.get(name);
  if (!found) {
    found = new History();
    histories.set(name, found);
    if (histories.size > HISTORIES_MAX) histories.delete(histories.keys().next().value);
  }
  return found;
}

/** Add the counters and rates of `message_stats` to a history, and levels. */
export function countStats(history, stats, names, gauges = {}) {
  const counters = {};
  const rates = {};
  for (const name of names) {
    if (stats?.[name] === undefined) continue;
    counters[name] = stats[name];
    rates[name] = stats[`${name}_details`]?.rate;
  }
  history.count(counters, rates, gauges);
}
