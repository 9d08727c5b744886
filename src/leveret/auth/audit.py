"""The audit log: logins, refusals, and every change that a user made.

Each event is a line of the logger `leveret.audit`. The last `EVENTS_MAX` events are kept in memory
for `GET /api/audit`. Events name users, addresses and objects, never passwords or message bodies.
Values are written as JSON strings, so that no name can forge a line.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

EVENTS_MAX: Final = 10_000

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

    def note(self, user: str, peer: str, action: str, target: str, result: str) -> None:
        event = AuditEvent(self._now_ms(), user, peer, action, target, result)
        self._events.append(event)
        log.info(
            "%s user=%s peer=%s target=%s result=%s",
            action,
            json.dumps(user),
            json.dumps(peer),
            json.dumps(target),
            json.dumps(result),
            extra={"event": "audit"},
        )

    def recent(self, limit: int) -> list[AuditEvent]:
        """Return the last `limit` events, newest first."""
        return list(islice(reversed(self._events), limit))
