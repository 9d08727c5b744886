/**
 * Refreshing: what is shown is asked for again and again, unless the reader pauses it.
 *
 * A slow answer makes the next question wait ten times as long as it took, so that a page that is
 * left open never costs the broker more than a tenth of its time. A hidden page asks nothing.
 */

import { connection } from "./api.js";

const RETRY_MS = 2000; // while the broker does not answer
const SHARE = 10;

/** Tells "change" when it is paused or resumed. */
export const live = Object.assign(new EventTarget(), {
  isPaused: false,
  intervalMs: 3000,
  /** @param {boolean} isPaused */
  pause(isPaused) {
    live.isPaused = isPaused;
    live.dispatchEvent(new Event("change"));
  },
});

/** Calls `ask` now and from then on, until `stop`. */
export class Poller {
  /**
   * @param {(signal: AbortSignal) => Promise<void>} ask
   * @param {(fault: Error|null) => void} onResult told of each failure, and null of each success
   */
  constructor(ask, onResult) {
    this.ask = ask;
    this.onResult = onResult;
    this.abort = new AbortController();
    this.timer = 0;
    this.isAsking = false;
    this.again = () => this.now();
    live.addEventListener("change", this.again);
    document.addEventListener("visibilitychange", this.again);
    this.run();
  }

  /** Asks at once, unless paused. */
  now() {
    if (!live.isPaused && !document.hidden) this.run();
  }

  /** Asks at once, even when paused: after the reader did something. */
  async run() {
    if (this.isAsking || this.abort.signal.aborted) return;
    this.isAsking = true;
    clearTimeout(this.timer);
    const began = performance.now();
    let fault = null;
    try {
      await this.ask(this.abort.signal);
    } catch (found) {
      fault = found;
    }
    this.isAsking = false;
    if (this.abort.signal.aborted) return;
    this.onResult(fault);
    const wait = Math.max(live.intervalMs, SHARE * (performance.now() - began));
    this.timer = setTimeout(() => this.now(), connection.isLost ? RETRY_MS : wait);
  }

  stop() {
    this.abort.abort();
    clearTimeout(this.timer);
    live.removeEventListener("change", this.again);
    document.removeEventListener("visibilitychange", this.again);
  }
}
