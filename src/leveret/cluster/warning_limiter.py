"""Limit the warnings about other nodes: each once a minute, and few in all.

A peer that is refused connects again and again, and so may any program. Their lines must not fill
the log.
"""

import logging
from collections.abc import Callable
from typing import Final

REPEAT_S: Final = 60.0  # the same line about the same peer is not repeated before
LINES_MAX: Final = 60  # in `REPEAT_S`, about all peers


class WarningLimiter:
    """The warnings of the last minute."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._said: dict[tuple[str, str], float] = {}  # by peer and line, the oldest first

    def level(self, peer: str, line: str) -> int:
        """Return the level for a line: WARNING if it is new, DEBUG if it was logged lately."""
        now_s = self._time_s()
        for key in [key for key, said_s in self._said.items() if now_s - said_s >= REPEAT_S]:
            del self._said[key]
        if (peer, line) in self._said or len(self._said) >= LINES_MAX:
            return logging.DEBUG
        self._said[peer, line] = now_s
        return logging.WARNING

    def forget(self, peer: str) -> None:
        """Log the lines about a peer again, because it has connected since."""
        for key in [key for key in self._said if key[0] == peer]:
            del self._said[key]
