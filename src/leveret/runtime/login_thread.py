"""Verify passwords in a thread, because their hashes are slow on purpose.

One thread does one check after the other, so that a flood of logins uses at most one core. Each
result is handed over in a turn of the engine.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from leveret.runtime.turns import TurnRunner

log = logging.getLogger(__name__)


class LoginThread:
    """The thread; it starts with the first check."""

    def __init__(self, turns: TurnRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._turns = turns
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._stopped = False

    def run(self, work: Callable[[], bool], then: Callable[[bool | None], None]) -> None:
        """Run `work` in the thread, then call `then` with its result; None if it raised.

        After `stop` this does nothing.
        """
        if self._stopped:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="leveret-login")
        done = self._loop.run_in_executor(self._pool, work)

        def on_done(future: asyncio.Future[bool]) -> None:
            if not self._stopped:
                self._hand_over_result(future, then)

        done.add_done_callback(on_done)

    def _hand_over_result(
        self, future: asyncio.Future[bool], then: Callable[[bool | None], None]
    ) -> None:
        fault = future.exception()
        if fault is not None:
            text = "verifying a password failed because of a bug: please report it"
            log.error(text, exc_info=fault)
        self._turns.begin()
        try:
            then(future.result() if fault is None else None)
        finally:
            self._turns.end()

    async def stop(self) -> None:
        """Drop the waiting checks, and wait for the running one, which needs the loop."""
        self._stopped = True
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
