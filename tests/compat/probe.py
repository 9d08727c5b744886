"""Measures how long a machine held a broker up, apart from what any case observes.

Some cases rest on a premise about time: a queue that expires after three seconds is asked for a
message every 0.7 s. On a machine that stands still for three seconds in between, the case observes
the machine and not the broker. A `Probe` says so: it makes small round trips to the same broker,
from a thread of the same process and over a connection of its own, and keeps the longest time
between two answers. A stall of the broker, of the client or of the whole machine makes that time
long; a wrong observation does not.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from tests.compat.client import NoAnswerError, connect

_PAUSE_S: Final = 0.02


class Probe:
    """Round trips to a broker while the context is open."""

    def __init__(self, host: str, port: int) -> None:
        self._channel = connect(host, port).channel()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._longest_s = 0.0

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._channel.connection.drop()

    def longest_s(self) -> float:
        """The longest time without an answer; complete once the context is closed."""
        return self._longest_s

    def _ask(self) -> None:
        answered_s = time.monotonic()
        is_over = False
        while not is_over:
            # The last round trip begins after the end of the play, so that no stall is missed.
            is_over = self._over.wait(_PAUSE_S)
            try:
                self._channel.sync()
            except (NoAnswerError, OSError):
                is_over = True
            now_s = time.monotonic()
            self._longest_s = max(self._longest_s, now_s - answered_s)
            answered_s = now_s
