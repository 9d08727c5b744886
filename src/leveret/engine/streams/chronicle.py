"""Life events as messages of a stream.

    header         set for
    x-event        all: the words of `leveret.engine.history.life_events`
    x-queue        all events at a queue, and `routed`
    x-reason       events with several possible reasons
    x-consumer     delivered: the consumer's tag
    x-broker-id    published, queued: the number of the publish or the copy
    x-next-id      due: the number under which the copy continues
    x-publish-id   queued: the number of the publish, if its exchange has a chronicle
                   published: that of the exchange before, if both exchanges have a chronicle
    x-cause-id     published, queued: the copy whose dead-lettering brought the message here

`published` and `queued` have the properties and the body of the message. The body of every other
event is the number of its publish or copy as text, or two numbers, `first-last`, for a range. The
time of an event is that of its message in the stream. Routing key and exchange are the message's.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.history.life_events import DUE, Chronicle, copy_id
from leveret.engine.message import Address
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import field_of

# Encoded headers that are cached. A busy queue has a few for each consumer.
_HEADERS_MAX: Final = 1024
# Headers that are removed from a message. A message that was replayed from a chronicle has them,
# and they belong to the life of another message.
_OWN: Final = ("x-queue", "x-reason", "x-consumer", "x-next-id", "x-publish-id", "x-cause-id")


class StreamChronicle(Chronicle):
    """Writes to the stream of a name, while it exists."""

    def __init__(self, queues: dict[str, Queue], stream: str) -> None:
        self.stream = stream
        self._queues = queues
        self._headers: dict[tuple[str, str, str, str], bytes] = {}

    def _target(self) -> Stream | None:
        found = self._queues.get(self.stream)
        return found if isinstance(found, Stream) else None

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
        stream = self._target()
        if stream is None:
            return 0
        own = copy_id(stream.ledger.id, stream.writer.next_offset)
        entries: dict[str, object] = {"x-event": event, "x-broker-id": int(number or own)}
        if queue:
            entries["x-queue"] = queue
        if publish != 0:
            entries["x-publish-id"] = int(publish)
        if cause != 0:
            entries["x-cause-id"] = int(cause)
        properties = decode_properties(header)
        if properties.headers is not None:
            for name in _OWN:
                properties.headers.pop(name, None)
        _add_headers(properties, entries)
        stream.append(address.record(), encode_header(properties, len(body)), body)
        return own

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
        stream = self._target()
        if stream is None:
            return
        body = str(number) if last == number else f"{number}-{last}"
        header = self._header(event, queue, reason, consumer)
        stream.append(address.record(), header, body.encode())

    def note_due(self, number: i64, next_number: i64, queue: str, address: Address) -> None:
        stream = self._target()
        if stream is None:
            return
        properties = Properties()
        entries: dict[str, object] = {"x-event": DUE, "x-queue": queue}
        entries["x-next-id"] = int(next_number)
        _add_headers(properties, entries)
        stream.append(address.record(), encode_header(properties, 0), str(number).encode())

    def _header(self, event: str, queue: str, reason: str, consumer: str) -> bytes:
        key = (event, queue, reason, consumer)
        header = self._headers.get(key)
        if header is None:
            entries: dict[str, object] = {"x-event": event}
            if queue:
                entries["x-queue"] = queue
            if reason:
                entries["x-reason"] = reason
            if consumer:
                entries["x-consumer"] = consumer
            properties = Properties()
            _add_headers(properties, entries)
            header = encode_header(properties, 0)
            if len(self._headers) >= _HEADERS_MAX:
                self._headers.clear()
            self._headers[key] = header
        return header


def _add_headers(properties: Properties, entries: dict[str, object]) -> None:
    headers = properties.headers if properties.headers is not None else {}
    for name, value in entries.items():
        headers[name] = field_of(value)
    properties.headers = headers
