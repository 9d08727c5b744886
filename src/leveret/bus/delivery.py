"""A delivery as handlers and middleware see it: the message, and where it stands in its retries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.bus import headers as names


@dataclass(frozen=True)
class Delivery:
    """One delivery of a message. `headers` has `x-retry-count` as the bus counts it."""

    queue: str
    body: bytes
    message_id: str
    type: str = ""  # the event's name
    routing_key: str = ""
    exchange: str = ""
    content_type: str = ""
    correlation_id: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    retry_count: int = 0
    timestamp_s: int | None = None  # when it was published, by its publisher's clock
    is_redelivered: bool = False

    @property
    def traceparent(self) -> str | None:
        found = self.headers.get(names.TRACEPARENT)
        return found if isinstance(found, str) else None

    @property
    def due_s(self) -> float | None:
        """Before when it must not be handled, by `processAfterDelayMs` from its publish time."""
        delay_ms = names.number(self.headers.get(names.PROCESS_AFTER_DELAY))
        if not delay_ms:
            return None
        published_ms = self.headers.get(names.PUBLISHED_MS)
        if isinstance(published_ms, int) and published_ms > 0:
            return (published_ms + delay_ms) / 1000
        if self.timestamp_s is None:
            return None
        # The second may have been almost over: rather late by one than early.
        return (self.timestamp_s * 1000 + 999 + delay_ms) / 1000
