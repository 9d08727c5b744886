"""Knows when something of a shard is due next, so that a node sleeps until then.

A time comes from the shard itself, from a call of this node that leases or delays a job, or from
another node by a notification. Each node therefore plans a look at the shard for every row with a
time, or for an earlier row:

- The node that writes a row with an earlier time than it knows tells the other nodes (`is_news`).
- A row with a later time needs no news: every node looks at the earlier time, and finds the row.

Times are kept by the clock of the event loop, and calculated from the clock of the shard.
"""

import asyncio
import math
from typing import Final

# A node that looks a moment too early has to look again.
CLOCK_ERROR_S: Final = 0.01


class DueTimes:
    """The earliest known time at which something of one shard is due."""

    def __init__(self) -> None:
        self.next_s = math.inf  # when to look; infinite: nothing is known to become due
        self._shared_s = math.inf  # the earliest time that the other nodes know too
        self.is_news = False  # they must be told of `next_s`
        self._changed = asyncio.Event()

    def expect(self, in_s: float) -> None:
        """Note a time that a call of this node has written."""
        at_s = _from_now(in_s + CLOCK_ERROR_S)
        if at_s < self._shared_s:
            self._shared_s = at_s
            self.is_news = True
            self._look_at(at_s)

    def hear(self, in_s: float) -> None:
        """Note a time that the shard or another node has told."""
        at_s = _from_now(in_s)
        self._shared_s = min(self._shared_s, at_s)
        self._look_at(at_s)

    def look_soon(self) -> None:
        """Look although nothing is known to be due: a notification may have been missed."""
        self._look_at(_from_now(0.0))

    def _look_at(self, at_s: float) -> None:
        if at_s < self.next_s or self.is_news:
            self.next_s = min(self.next_s, at_s)
            self._changed.set()

    def forget(self) -> None:
        """Forget the times, because the shard is asked now. Times of later calls are kept."""
        self.next_s = self._shared_s = math.inf

    async def wait(self, until_s: float) -> None:
        """Wait until a time has changed, or for `until_s` by the clock of the event loop."""
        try:
            async with asyncio.timeout_at(until_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()


def _from_now(in_s: float) -> float:
    return asyncio.get_running_loop().time() + in_s
