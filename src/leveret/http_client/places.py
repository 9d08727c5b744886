"""Places of calls that may run at the same time; the others wait, first come first served.

`asyncio.Semaphore` does the same, by three coroutines for each call. They take a twentieth of the
CPU time of a short call.
"""

import asyncio
from collections import deque


class Places:
    """The places of one event loop. A call gives its place back at its end."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_take(self) -> bool:
        """Take a free place. Return False if there is none; then `wait` for one."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Return when a call has handed its place over."""
        handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(handed)
        try:
            await handed
        except asyncio.CancelledError:
            if handed.done() and not handed.cancelled():  # cancelled after it got the place
                self.give_back()
            raise

    def give_back(self) -> None:
        """Hand the place over to the call that has waited longest, or make it free."""
        while self._waiting:
            handed = self._waiting.popleft()
            if not handed.done():
                handed.set_result(None)
                return
        self._free += 1
