"""Why work in the background fails: work that no client waits for, so that nobody is told of it.

Each part keeps its last fault as a sentence, and clears it when the work succeeds again. A task
that has ended by a bug stays listed until the node is restarted. `leveret ctl status` and
`GET /api/health/checks/background` show the sentences.
"""

import asyncio
import logging
from typing import Protocol

log = logging.getLogger(__name__)


class Part(Protocol):
    """A part of the node that works in the background."""

    @property
    def fault(self) -> str:
        """Return why its work fails now, as a sentence; empty if it does not."""


class BackgroundFaults:
    """The faults of all parts of one node."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._ended: list[str] = []

    def watch(self, part: Part) -> None:
        """Show the faults of a part from now on."""
        self._parts.append(part)

    def note_end(self, task: "asyncio.Task[None]") -> None:
        """Note the failure of a task at once, not when the node stops."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            text = f"the part {task.get_name()} has stopped because of a bug: restart this node"
            log.error("%s, and report it", text, exc_info=fault)
            self._ended.append(text)

    def texts(self) -> list[str]:
        """Return why work fails, as sentences; none if all is well."""
        return [*self._ended, *(part.fault for part in self._parts if part.fault)]
