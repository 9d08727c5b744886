/**
 * Rates over time, computed from the broker's counters.
 *
 * Each history is kept under a name, so that leaving a view and coming back shows the same chart.
 * The first point of a history is the rate that the broker reports.
 */

const POINTS_MAX = 240;
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
   * Add a point: the rates since the last counters.
   * @param {Object<string, number>} counters
   * @param {Object<string, number>} rates reported by the broker, for the first point
   */
  count(counters, rates) {
    const at = performance.now();
    const values = {};
    const seconds = this.last ? (at - this.last.at) / 1000 : 0;
    if (this.last && seconds < 0.2) return; // two views loaded it at the same time
    for (const [name, value] of Object.entries(counters)) {
      const before = this.last?.counters[name];
      // A counter that went back means that the broker has restarted.
      const isKnown = before !== undefined && value >= before;
      values[name] = isKnown ? (value - before) / seconds : (rates[name] ?? 0);
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

/** Add the counters and rates of `message_stats` to a history. */
export function countStats(history, stats, names) {
  const counters = {};
  const rates = {};
  for (const name of names) {
    counters[name] = stats?.[name] ?? 0;
    rates[name] = stats?.[`${name}_details`]?.rate ?? 0;
  }
  history.count(counters, rates);
}
