/**
 * Rates over time, computed here from counters that the broker gives.
 *
 * Histories are kept by the name of what they are about, so that going to another view and back
 * shows the same chart. The first point of a history is the broker's own rate.
 */

const POINTS_MAX = 240;
const HISTORIES_MAX = 100;

/** @typedef {{at: number, values: Object<string, number>}} Point */

/** @type {Map<string, History>} */
const histories = new Map();

/** Rates of one thing. */
export class History {
  constructor() {
    /** @type {Point[]} */
    this.points = [];
    this.last = null;
  }

  /**
   * Adds what counters say now.
   * @param {Object<string, number>} counters
   * @param {Object<string, number>} rates the broker's own, for the first point
   */
  count(counters, rates) {
    const at = performance.now();
    const values = {};
    const seconds = this.last ? (at - this.last.at) / 1000 : 0;
    if (this.last && seconds < 0.2) return; // two views asked at the same time
    for (const [name, value] of Object.entries(counters)) {
      const before = this.last?.counters[name];
      // A counter that went back belongs to a broker that was started again.
      const isKnown = before !== undefined && value >= before;
      values[name] = isKnown ? (value - before) / seconds : (rates[name] ?? 0);
    }
    this.last = { at, counters };
    this.add(at, values);
  }

  /** Adds values that are no counters. */
  measure(values) {
    this.add(performance.now(), values);
  }

  add(at, values) {
    this.points.push({ at, values });
    if (this.points.length > POINTS_MAX) this.points.shift();
  }

  /** The newest value of a name. */
  now(name) {
    return this.points.at(-1)?.values[name];
  }
}

/** The history of a thing, begun where there is none. */
export function historyOf(name) {
  let found = histories.get(name);
  if (!found) {
    found = new History();
    histories.set(name, found);
    if (histories.size > HISTORIES_MAX) histories.delete(histories.keys().next().value);
  }
  return found;
}

/** Takes counters and the broker's rates out of `message_stats`. */
export function countStats(history, stats, names) {
  const counters = {};
  const rates = {};
  for (const name of names) {
    counters[name] = stats?.[name] ?? 0;
    rates[name] = stats?.[`${name}_details`]?.rate ?? 0;
  }
  history.count(counters, rates);
}
