"""A delivery as handlers and middleware see it: the message and its retry count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.bus import headers as bus_headers


@dataclass(frozen=True)
class Delivery:
    """One delivery of a message. `headers` has `x-retry-count` set to `retry_count`."""

    queue: str
    body: bytes
    message_id: str
    type: str = ""  # the event name
    routing_key: str = ""
    exchange: str = ""
    content_type: str = ""
    correlation_id: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    retry_count: int = 0
    timestamp_s: int | None = None  # publish time by the publisher's clock, in whole seconds
    is_redelivered: bool = False

    @property
    def traceparent(self) -> str | None:
        found = self.headers.get(bus_headers.TRACEPARENT)
        return found if isinstance(found, str) else None

    @property
    def due_s(self) -> float | None:
        """The time (Unix) from which it may be handled; None means at once.

        That is the publish time plus `processAfterDelayMs`, or the time of a retry with jitter.
        """
        delayed_s, retry_s = self._delayed_until_s, self._retry_at_s
        if delayed_s is None or retry_s is None:
            return retry_s if delayed_s is None else delayed_s
        return max(delayed_s, retry_s)

    @property
    def _retry_at_s(self) -> float | None:
        at_ms = self.headers.get(bus_headers.RETRY_AT_MS)
        return at_ms / 1000 if isinstance(at_ms, int) and at_ms > 0 else None

    @property
    def _delayed_until_s(self) -> float | None:
        delay_ms = bus_headers.count_of(self.headers.get(bus_headers.PROCESS_AFTER_DELAY))
        if not delay_ms:
            return None
        published_ms = self.headers.get(bus_headers.PUBLISHED_MS)
        if isinstance(published_ms, int) and published_ms > 0:
            return (published_ms + delay_ms) / 1000
        if self.timestamp_s is None:
            return None
        # The timestamp has whole seconds: better up to one second late than early.
        return (self.timestamp_s * 1000 + 999 + delay_ms) / 1000
