/**
 * Polling: load the data of a view again and again, unless the user pauses it.
 *
 * After a slow answer, the next request waits ten times as long as the answer took, so that an open
 * page never takes more than a tenth of the broker's time. It waits for `WAIT_MAX_MS` at most. A hidden
 * page sends nothing.
 */

import { connection } from "./api.js";

const RETRY_MS = 2000; // while the broker does not answer
const SLOW_MS = 5000; // an answer that takes longer is reported
const WAIT_FACTOR = 10;
const WAIT_MAX_MS = 60_000;

/** Whether and how often to poll. Dispatches "change" when it is paused or resumed. */
export const live = Object.assign(new EventTarget(), {
  isPaused: false,
  intervalMs: 3000,
  /** @param {boolean} isPaused */
  pause(isPaused) {
    live.isPaused = isPaused;
    live.dispatchEvent(new Event("change"));
  },
});

/** Calls `ask` at once, and then periodically, until `stop`. */
export class Poller {
  /**
   * @param {(signal: AbortSignal) => Promise<void>} ask
   * @param {(fault: Error|null) => void} onResult called after each call, with its error or null
   * @param {() => void} [onSlow] called when a call takes long
   */
  constructor(ask, onResult, onSlow = () => {}) {
    this.ask = ask;
    this.onResult = onResult;
    this.onSlow = onSlow;
    /** @type {AbortController|null} of the call that has not been answered */
    this.asking = null;
    this.isStopped = false;
    this.timer = 0;
    this.onChange = () => this.now();
    live.addEventListener("change", this.onChange);
    document.addEventListener("visibilitychange", this.onChange);
    this.run();
  }

  /** Call `ask` at once, unless paused or hidden. */
  now() {
    if (!live.isPaused && !document.hidden) this.run();
  }

  /** Call `ask` at once, even if paused, unless an answer is on its way. */
  async run() {
    if (this.asking || this.isStopped) return;
    const asking = new AbortController();
    this.asking = asking;
    clearTimeout(this.timer);
    const began = performance.now();
    this.timer = setTimeout(this.onSlow, SLOW_MS);
    let fault = null;
    try {
      await this.ask(asking.signal);
    } catch (found) {
      fault = found;
    }
    if (this.asking !== asking) return; // stopped, or another call has begun
    this.asking = null;
    clearTimeout(this.timer);
    this.onResult(fault);
    const rest = Math.min(WAIT_FACTOR * (performance.now() - began), WAIT_MAX_MS);
    const wait = Math.max(live.intervalMs, rest);
    this.timer = setTimeout(() => this.now(), connection.isLost ? RETRY_MS : wait);
  }

  /** Call `ask` at once: the user has changed something, and an answer on its way is outdated. */
  restart() {
    this.asking?.abort();
    this.asking = null;
    this.run();
  }

  stop() {
    this.isStopped = true;
    this.asking?.abort();
    this.asking = null;
    clearTimeout(this.timer);
    live.removeEventListener("change", this.onChange);
    document.removeEventListener("visibilitychange", this.onChange);
  }
}
