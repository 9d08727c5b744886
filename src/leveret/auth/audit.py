"""Who did what: logins, refusals, and every change that somebody asked for.

Each event is a line of the logger `leveret.audit` and one of the last `EVENTS_MAX`, which
`GET /api/audit` shows. Events name users, addresses and objects, never passwords or bodies. Values
are written as JSON strings, so that no name can forge a line.
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
    """One thing that somebody did, or tried to do."""

    time_ms: int
    user: str
    peer: str  # address that it came from
    action: str  # "login", "queue.delete", or the method of an HTTP request
    target: str  # what it was done to: a vhost, a queue, the path of a request
    result: str  # "ok", a status code, or why it was refused


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
        """The newest events, newest first."""
        return list(islice(reversed(self._events), limit))
