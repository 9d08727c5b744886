"""Log refused clients: the first at once, the others as one line for each minute.

An attacker who is refused thousands of times a second must not fill the log.
"""

import logging
import time
from typing import Final

REPORT_S: Final = 60.0  # least time between two lines with the same reason
NO_DESCRIPTORS: Final = (
    "the node has too many open files: raise its limit (`ulimit -n`, LimitNOFILE of systemd)"
)


class Refusals:
    """Counts of refused clients, by reason. Reasons are few: texts of the code and TLS errors."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._next_s: dict[str, float] = {}  # when a reason may be logged again
        self._silent: dict[str, int] = {}  # refusals since the last line

    def note(self, reason: str, host: str) -> None:
        """Log a refusal, or count it if the same reason was logged a short time ago."""
        now_s = time.monotonic()
        if now_s < self._next_s.get(reason, 0.0):
            self._silent[reason] = self._silent.get(reason, 0) + 1
            return
        self._next_s[reason] = now_s + REPORT_S
        others = self._silent.pop(reason, 0)
        facts: dict[str, object] = {"host": host}
        if others:
            facts["refused_before"] = others
        self._log.warning("a connection was refused: %s", reason, extra={"facts": facts})
