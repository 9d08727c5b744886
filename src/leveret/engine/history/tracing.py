"""Collect the events of traced messages: messages that carry a sampled `traceparent` header.

`traceparent` is defined in https://www.w3.org/TR/trace-context/. A node that exports spans has one
`TracedMessages`. Each of its queues then has a `TracedChronicle`, which collects the events of
traced messages and passes all events on to the queue's other chronicle, if there is one. A message
that is not traced costs a search in its header. On a node that exports nothing, tracing is absent
and costs nothing.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.history.life_events import DUE, FINAL, QUEUED, Chronicle
from leveret.engine.message import Address

LIVE_MAX: Final = 10_000  # traced copies in queues at once; further copies are not traced
EVENTS_MAX: Final = 10_000  # events of one turn

_NAME: Final = b"\x0btraceparentS\x00\x00\x00\x37"  # header name, type longstr, length 55
_PARENT_BYTES: Final = 55
_HEX: Final = frozenset(b"0123456789abcdef")


class TracedEvent:
    """One event of a traced copy."""

    def __init__(
        self,
        event: str,
        number: i64,
        time_ms: i64,
        parent: bytes,
        queue: str,
        routing_key: str,
        reason: str,
    ) -> None:
        self.event = event
        self.number = number  # id of the copy
        self.time_ms = time_ms
        self.parent = parent  # traceparent
        self.queue = queue
        self.routing_key = routing_key
        self.reason = reason


class TracedMessages:
    """The traced copies that are in queues, and the events of the current turn."""

    def __init__(self) -> None:
        self.now_ms: i64 = 0
        self.live: dict[int, bytes] = {}  # id of a copy -> its traceparent
        self.events: list[TracedEvent] = []
        self.missed: i64 = 0  # events and copies that exceeded the limits

    def begin(self, number: i64, parent: bytes, queue: str, address: Address) -> None:
        """Start to trace a copy that was queued."""
        if len(self.live) >= LIVE_MAX:
            self.missed += 1
            return
        self.live[number] = parent
        self._add_event(QUEUED, number, parent, queue, address, "")

    def note(self, event: str, number: i64, queue: str, address: Address, reason: str) -> None:
        """Add an event if the copy is traced."""
        parent = self.live.get(number)
        if parent is None:
            return
        if event in FINAL:
            del self.live[number]
        self._add_event(event, number, parent, queue, address, reason)

    def note_due(self, number: i64, next_number: i64, queue: str, address: Address) -> None:
        """Follow a scheduled copy that is due under its new id."""
        parent = self.live.pop(number, None)
        if parent is None:
            return
        self.live[next_number] = parent
        self._add_event(DUE, number, parent, queue, address, "")
        self._add_event(QUEUED, next_number, parent, queue, address, "")

    def _add_event(
        self, event: str, number: i64, parent: bytes, queue: str, address: Address, reason: str
    ) -> None:
        if len(self.events) >= EVENTS_MAX:
            self.missed += 1
            return
        key = address.routing_key
        self.events.append(TracedEvent(event, number, self.now_ms, parent, queue, key, reason))


def sampled_parent(header: bytes) -> bytes:
    """Return the traceparent of a content header if it is sampled, else empty bytes."""
    at: i64 = header.find(_NAME)
    if at < 0:
        return b""
    parent = header[at + len(_NAME) : at + len(_NAME) + _PARENT_BYTES]
    if len(parent) != _PARENT_BYTES or parent[:3] != b"00-" or not _is_hex(parent):
        return b""
    return parent if int(parent[53:55], 16) & 1 else b""


def _is_hex(parent: bytes) -> bool:
    """Return True if the three numbers of a traceparent are lower-case hex, with dashes between."""
    for part in (parent[3:35], parent[36:52], parent[53:55]):
        for digit in part:
            if digit not in _HEX:
                return False
    return parent[35] == 45 and parent[52] == 45


class TracedChronicle(Chronicle):
    """Collects events of traced messages, and passes all events on to another chronicle."""

    def __init__(self, inner: Chronicle | None, traced_messages: TracedMessages) -> None:
        self.inner = inner
        self._traced_messages = traced_messages

    def note_content(
        self,
        event: str,
        number: i64,
        publish: i64,
        cause: i64,
        queue: str,
        address: Address,
        header: bytes,
        body: bytes,
    ) -> i64:
        parent = sampled_parent(header) if event == QUEUED else b""
        if parent:
            self._traced_messages.begin(number, parent, queue, address)
        inner = self.inner
        if inner is None:
            return 0
        return inner.note_content(event, number, publish, cause, queue, address, header, body)

    def note(
        self,
        event: str,
        number: i64,
        last: i64,
        queue: str,
        reason: str,
        consumer: str,
        address: Address,
    ) -> None:
        traced_messages = self._traced_messages
        if traced_messages.live:
            if number == last:
                traced_messages.note(event, number, queue, address, reason)
            else:
                for live in list(traced_messages.live):
                    if number <= live <= last:
                        traced_messages.note(event, live, queue, address, reason)
        if self.inner is not None:
            self.inner.note(event, number, last, queue, reason, consumer, address)

    def note_due(self, number: i64, next_number: i64, queue: str, address: Address) -> None:
        if self._traced_messages.live:
            self._traced_messages.note_due(number, next_number, queue, address)
        if self.inner is not None:
            self.inner.note_due(number, next_number, queue, address)


def add_tracing(
    chronicle: Chronicle | None, traced_messages: TracedMessages | None
) -> Chronicle | None:
    """Wrap the chronicle of a queue for tracing, if the node exports spans."""
    return chronicle if traced_messages is None else TracedChronicle(chronicle, traced_messages)


def remove_tracing(chronicle: Chronicle | None) -> Chronicle | None:
    """Return the chronicle that a `TracedChronicle` wraps; return any other chronicle itself."""
    return chronicle.inner if isinstance(chronicle, TracedChronicle) else chronicle
