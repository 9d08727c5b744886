"""Notice a disk that needs long for a sync, and log it once when that begins and when it ends.

A look compares the figures of the log with those of the look before, so a sync costs nothing here.
The disk is slow after `LOOKS` looks in a row between which a sync took `SLOW_SYNC_S` on average. It
is fast again after as many looks with less than `FAST_SYNC_S`. A sync that has not ended counts
with its time so far. Without a sync nothing is known: a look is left out, and after `FORGET_S` the
disk counts as fast.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from leveret.histogram import Histogram

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
LOOKS: Final = 2
SLOW_SYNC_S: Final = 0.1
FAST_SYNC_S: Final = 0.05
FORGET_S: Final = 60.0
ADVICE: Final = "look for other programs that use this disk, and for faults of it"


class SyncedLog(Protocol):
    """A log whose syncs are measured."""

    @property
    def sync_times(self) -> Histogram:
        """Return the seconds of all syncs that have ended."""

    def sync_began_s(self) -> float:
        """Return when the running sync began, by `time.perf_counter`; 0 if none runs."""


class SyncWatch:
    """Watches the disk of one data directory. The log may be replaced: roles change."""

    def __init__(self, folder: str, log_of_disk: Callable[[], SyncedLog | None]) -> None:
        self._folder = folder
        self._log_of_disk = log_of_disk
        self._is_slow = False
        # Mean time of a sync at the newest look that had one. While the disk counts as slow, the
        # time of a fast look is not taken.
        self._mean_s = 0.0
        self._streak = 0  # looks in a row that contradict `_is_slow`
        self._quiet_s = 0.0  # time since the newest look with a sync
        self._times: Histogram | None = None  # of the last look
        self._count = 0  # syncs at the last look
        self._sum_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def slow_sync_s(self) -> float:
        """The time of a sync while the disk is slow; 0 if it is not."""
        return self._mean_s if self._is_slow else 0.0

    def start(self) -> None:
        """Look now and every `LOOK_S`."""
        self.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Compare the figures of the log with those of the last look, `LOOK_S` ago."""
        synced_log = self._log_of_disk()
        if synced_log is None:  # the node changes its role
            return
        count, sum_s = self._new_syncs(synced_log.sync_times)
        running_s = _running_s(synced_log)
        if running_s >= SLOW_SYNC_S:
            count, sum_s = count + 1, sum_s + running_s
        if count:
            self._quiet_s = 0.0
            self._judge(sum_s / count)
        else:
            self._quiet_s += LOOK_S
            if self._quiet_s >= FORGET_S:
                self._forget()

    def _new_syncs(self, times: Histogram) -> tuple[int, float]:
        """Return the number of syncs since the last look, and the sum of their times."""
        if times is not self._times:
            self._times, self._count, self._sum_s = times, 0, 0.0
        count, sum_s = times.count - self._count, times.sum - self._sum_s
        self._count, self._sum_s = times.count, times.sum
        return count, sum_s

    def _judge(self, mean_s: float) -> None:
        contradicts = mean_s < FAST_SYNC_S if self._is_slow else mean_s >= SLOW_SYNC_S
        if not (self._is_slow and contradicts):  # "it is slow: a sync takes 2 ms" helps nobody
            self._mean_s = mean_s
        self._streak = self._streak + 1 if contradicts else 0
        if self._streak < LOOKS:
            return
        self._streak = 0
        self._is_slow = not self._is_slow
        facts = {"facts": {"data": self._folder, "sync_ms": round(mean_s * 1000)}}
        if self._is_slow:
            text = "the disk is slow: confirms wait for its syncs: %s"
            log.warning(text, ADVICE, extra=facts)
        else:
            log.warning("the disk is not slow any more", extra=facts)

    def _forget(self) -> None:
        if self._is_slow:
            text = "the disk was slow, and has synced nothing for %d s: it counts as fast again"
            log.warning(text, FORGET_S, extra={"facts": {"data": self._folder}})
        self._is_slow = False
        self._streak = 0


def _running_s(synced_log: SyncedLog) -> float:
    """Return how long the running sync has taken so far; 0 if none runs."""
    began_s = synced_log.sync_began_s()
    return time.perf_counter() - began_s if began_s > 0 else 0.0
