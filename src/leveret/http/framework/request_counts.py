"""Counts of HTTP requests: by method and status, and how long they took."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from leveret.histogram import Histogram

TIME_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
CLIENT_GONE: Final = 499  # status of a request whose client disconnected before the answer
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class RequestCounts:
    """Counts of one node, since it started."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}  # by method and status
        self.times = Histogram(TIME_BOUNDS_S)  # from the request until its answer was sent
        self.running = 0

    def note(self, method: str, status: int, took_s: float) -> None:
        """Count a finished request. Unknown methods count as "other": the table is bounded."""
        key = (method if method in METHODS else "other", status)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.times.observe(took_s)


# The types of ASGI, written out so that this module does not import Starlette.
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]


def with_request_counts(app: _App, requests: RequestCounts) -> _App:
    """Return the application with every request counted."""

    async def count(scope: _Message, receive: _Receive, send: _Send) -> None:
        status = CLIENT_GONE

        async def note_status(message: _Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began_s = time.perf_counter()
        requests.running += 1
        try:
            await app(scope, receive, note_status)
        finally:
            requests.running -= 1
            requests.note(scope.get("method", ""), status, time.perf_counter() - began_s)

    return count
