"""Make the messages that the bus publishes: events, and copies of received messages.

A copy keeps body, properties and headers, with these exceptions. It has no expiration, because a
dead letter must not expire. It has no CC and BCC, because it would be routed to others again. It
has no user id, because the broker refuses the id of another user. A copy is always persistent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from aiormq import spec

from leveret.bus import codec, tracing
from leveret.bus import headers as bus_headers
from leveret.bus.errors import (
    TooLargeError,
)
from leveret.bus.lossless_properties import LosslessProperties, copy_properties
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, PublishAddress

PERSISTENT: Final = 2
DELAY_S_MAX: Final = bus_headers.COUNT_MAX // 1000
# CC and BCC, and the headers that quorum queues add to a delivery.
_NOT_COPIED: Final = ("CC", "BCC", *bus_headers.DELIVERY_COUNTS)


@dataclass(frozen=True)
class OutgoingMessage:
    """A message and the address to which it is published."""

    address: PublishAddress
    body: bytes
    properties: spec.Basic.Properties
    mandatory: bool

    @property
    def message_id(self) -> str:
        return str(self.properties.message_id)


@dataclass(frozen=True)
class PublishOptions:
    """Options of one publish; None leaves the choice to the event and the layout."""

    routing_key: str | None = None
    headers: Mapping[str, Any] | None = None
    delay_s: float | None = None  # from the publish until consumers handle the message
    message_id: str | None = None
    mandatory: bool | None = None
    timeout_s: float | None = None
    traceparent: str | None = None
    correlation_id: str | None = None


def message_of_event(
    event: object, options: PublishOptions, layout: Layout, now_ms: int, rng: Random
) -> OutgoingMessage:
    """Make the message of an event. Raise EncodeError."""
    message_id = options.message_id or f"{rng.getrandbits(128):032x}"
    properties = LosslessProperties(
        content_type=codec.CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        message_id=message_id,
        message_type=codec.name_of(type(event)),
        timestamp=datetime.fromtimestamp(now_ms // 1000, UTC),
        correlation_id=options.correlation_id,
        headers=_headers(options, now_ms, rng),
    )
    mandatory = layout.mandatory if options.mandatory is None else options.mandatory
    address = PublishAddress(layout.exchange, _routing_key(event, options, layout))
    return OutgoingMessage(address, codec.encode(event), properties, mandatory)


def _routing_key(event: object, options: PublishOptions, layout: Layout) -> str:
    if options.routing_key is not None:
        return options.routing_key
    return (
        layout.queue if layout.exchange == DEFAULT_EXCHANGE else codec.routing_key_of(type(event))
    )


def _headers(options: PublishOptions, now_ms: int, rng: Random) -> bus_headers.Headers:
    found: bus_headers.Headers = {**(options.headers or {})}
    if options.delay_s is not None:
        found[bus_headers.PROCESS_AFTER_DELAY] = _delay_ms(options.delay_s)
        found[bus_headers.PUBLISHED_MS] = now_ms
    if options.traceparent is not None:
        found[bus_headers.TRACEPARENT] = options.traceparent
    elif bus_headers.TRACEPARENT not in found and (trace := tracing.current()) is not None:
        found[bus_headers.TRACEPARENT] = tracing.child_of(trace[0], rng)
        if trace[1]:
            found[bus_headers.TRACESTATE] = trace[1]
    return found


def _delay_ms(delay_s: float) -> int:
    """Return the value of the header. Raise ValueError for a delay that consumers would ignore."""
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise ValueError(f"delay_s must be from 0 to {DELAY_S_MAX} seconds, not {delay_s!r}")
    return round(delay_s * 1000)


def copy_of_message(
    body: bytes,
    properties: spec.Basic.Properties,
    headers: bus_headers.Headers,
    address: PublishAddress,
    message_id: str,
) -> OutgoingMessage:
    """Copy a received message with other headers. The copy is mandatory: a queue must take it."""
    kept = {name: value for name, value in headers.items() if name not in _NOT_COPIED}
    if properties.user_id:
        kept[bus_headers.ORIGINAL_USER] = properties.user_id
    changed = copy_properties(
        properties,
        headers=kept,
        expiration=None,
        user_id=None,
        delivery_mode=PERSISTENT,
        message_id=message_id,
    )
    return OutgoingMessage(address, body, changed, mandatory=True)


def require_body_size(message: OutgoingMessage, bytes_max: int) -> None:
    """Raise TooLargeError if the body has more bytes than allowed."""
    if len(message.body) > bytes_max:
        raise TooLargeError(
            message.message_id, f"{len(message.body)} bytes, {bytes_max} are allowed"
        )
