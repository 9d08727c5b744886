"""The audit log: logins, refusals, every change that a user made, and exports of data.

Each event is a line of the logger `leveret.audit`. The last `EVENTS_MAX` events are kept in memory
for `GET /api/audit`. Events name users, addresses and objects, never passwords or message bodies.
The log quotes each value, so that no name can forge a field or a line.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from leveret.shortened import shortened

EVENTS_MAX: Final = 10_000
READ_AGAIN_MS: Final = 60_000  # a read that is repeated within this time is not noted again
READS_MAX: Final = 10_000  # reads that are remembered to find repetitions

log = logging.getLogger("leveret.audit")


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One action of a user, done or refused."""

    time_ms: int
    user: str
    peer: str  # address of the client
    action: str  # "login", "queue.delete", or the method of an HTTP request
    target: str  # the vhost, the queue, or the path of the request
    result: str  # "ok", a status code, or the reason of the refusal


class Audit:
    """The last events, newest last."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._events: deque[AuditEvent] = deque(maxlen=EVENTS_MAX)
        self._reads: dict[tuple[str, ...], int] = {}  # time at which each was noted, oldest first

    def note(self, user: str, peer: str, action: str, target: str, result: str) -> None:
        target = shortened(target)
        event = AuditEvent(self._now_ms(), user, peer, action, target, result)
        self._events.append(event)
        facts = {"action": action, "user": user, "peer": peer, "target": target, "result": result}
        log.info("audit", extra={"facts": facts})

    def note_read(self, user: str, peer: str, action: str, target: str, result: str) -> None:
        """Note a read, unless the same read was noted in the last minute: programs repeat them."""
        read = (user, peer, action, shortened(target), result)
        now_ms = self._now_ms()
        if now_ms - self._reads.get(read, now_ms - READ_AGAIN_MS) < READ_AGAIN_MS:
            return
        self._reads.pop(read, None)
        self._reads[read] = now_ms
        if len(self._reads) > READS_MAX:
            del self._reads[next(iter(self._reads))]
        self.note(*read)

    def recent(self, limit: int) -> list[AuditEvent]:
        """Return the last `limit` events, newest first."""
        return list(islice(reversed(self._events), limit))
