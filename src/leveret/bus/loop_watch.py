"""Notice a handler that blocks the event loop, and name it.

A coroutine that computes or waits without `await` stops heartbeats, so that the broker takes all
messages of the process back. A thread checks that the loop still runs. The log names the handler
and the line at which it stands.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

_LOOKS: Final = 4  # within the time that is allowed
_log: Final = logging.getLogger(__name__)


class LoopWatch:
    """Watches the event loop on which it is started."""

    def __init__(
        self, blocked_s: float, name_of: "Callable[[asyncio.Task[Any] | None], str]"
    ) -> None:
        self._blocked_s = blocked_s
        self._every_s = blocked_s / _LOOKS
        self._name_of = name_of
        self._stopped = threading.Event()
        self._beat_s = 0.0
        self._beating: asyncio.TimerHandle | None = None
        self._blocked_by = ""  # the text that was logged about the handler that blocks the loop now

    def start(self) -> None:
        """Begin to watch the running loop."""
        loop = asyncio.get_running_loop()
        self._beat(loop)
        watch = threading.Thread(
            target=self._watch,
            args=(loop, threading.get_ident()),
            name="leveret-bus-watch",
            daemon=True,
        )
        watch.start()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat_s = time.monotonic()
        if self._blocked_by:
            _log.warning("the event loop runs again after %s", self._blocked_by)
            self._blocked_by = ""
        self._beating = loop.call_later(self._every_s, self._beat, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        while not self._stopped.wait(self._every_s):
            late_s = time.monotonic() - self._beat_s - self._every_s
            if late_s > self._blocked_s and not self._blocked_by and not loop.is_closed():
                self._blocked_by = self._name_of(asyncio.current_task(loop))
                _log.error(
                    "%s blocks the event loop for %.1f s at %s: heartbeats stop, and the broker"
                    " takes the messages back. Make it a plain function, or await",
                    self._blocked_by,
                    late_s,
                    _place(thread_id),
                )


def _place(thread_id: int) -> str:
    """Return the line at which a thread stands."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return "an unknown line"
    last = traceback.extract_stack(frame)[-1]
    return f"{last.filename}:{last.lineno} in {last.name}"
