"""Messages on their way out: events of the program, and copies of what was received.

A copy keeps what the message was, except for what would do harm where it goes: an expiration (a
dead letter must not expire), CC and BCC (it would be routed to others again) and the user id (the
broker refuses another user's). A copy is always persistent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from aiormq import spec

from leveret.bus import codec, tracing
from leveret.bus import headers as names
from leveret.bus.exact_properties import ExactProperties, exact_copy
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, Target
from leveret.errors import TooLargeError

PERSISTENT: Final = 2
DELAY_S_MAX: Final = names.COUNT_MAX // 1000
# Routing that is over, and what quorum queues add to a delivery.
_NOT_SENT: Final = ("CC", "BCC", "x-delivery-count", "x-acquired-count")
_ORIGINAL_USER: Final = "x-original-user-id"


@dataclass(frozen=True)
class Outgoing:
    """What is published, and where."""

    target: Target
    body: bytes
    properties: spec.Basic.Properties
    mandatory: bool

    @property
    def message_id(self) -> str:
        return str(self.properties.message_id)


@dataclass(frozen=True)
class PublishOptions:
    """What a caller may say of one publish; None leaves it to the event and the layout."""

    routing_key: str | None = None
    headers: Mapping[str, Any] | None = None
    delay_s: float | None = None  # consumers handle the message so long after the publish
    message_id: str | None = None
    mandatory: bool | None = None
    timeout_s: float | None = None
    traceparent: str | None = None
    correlation_id: str | None = None


def of_event(
    event: object, options: PublishOptions, layout: Layout, now_ms: int, rng: Random
) -> Outgoing:
    """The message of an event. Raises NotEncodable."""
    message_id = options.message_id or f"{rng.getrandbits(128):032x}"
    properties = ExactProperties(
        content_type=codec.CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        message_id=message_id,
        message_type=codec.name_of(type(event)),
        timestamp=datetime.fromtimestamp(now_ms // 1000, UTC),
        correlation_id=options.correlation_id,
        headers=_headers(options, now_ms, rng),
    )
    mandatory = layout.mandatory if options.mandatory is None else options.mandatory
    target = Target(layout.exchange, _routing_key(event, options, layout))
    return Outgoing(target, codec.encode(event), properties, mandatory)


def _routing_key(event: object, options: PublishOptions, layout: Layout) -> str:
    if options.routing_key is not None:
        return options.routing_key
    return (
        layout.queue if layout.exchange == DEFAULT_EXCHANGE else codec.routing_key_of(type(event))
    )


def _headers(options: PublishOptions, now_ms: int, rng: Random) -> names.Headers:
    found: names.Headers = {**(options.headers or {})}
    if options.delay_s is not None:
        found[names.PROCESS_AFTER_DELAY] = _delay_ms(options.delay_s)
        found[names.PUBLISHED_MS] = now_ms
    if options.traceparent is not None:
        found[names.TRACEPARENT] = options.traceparent
    elif names.TRACEPARENT not in found and (trace := tracing.current()) is not None:
        found[names.TRACEPARENT] = tracing.child_of(trace[0], rng)
        if trace[1]:
            found[names.TRACESTATE] = trace[1]
    return found


def _delay_ms(delay_s: float) -> int:
    """Return the value of the header. Raise ValueError for a delay that consumers would ignore."""
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise ValueError(f"delay_s must be from 0 to {DELAY_S_MAX} seconds, not {delay_s!r}")
    return round(delay_s * 1000)


def of_copy(
    body: bytes,
    properties: spec.Basic.Properties,
    headers: names.Headers,
    target: Target,
    message_id: str,
) -> Outgoing:
    """A received message with other headers, for another place. Somebody must take it."""
    kept = {name: value for name, value in headers.items() if name not in _NOT_SENT}
    if properties.user_id:
        kept[_ORIGINAL_USER] = properties.user_id
    changed = exact_copy(
        properties,
        headers=kept,
        expiration=None,
        user_id=None,
        delivery_mode=PERSISTENT,
        message_id=message_id,
    )
    return Outgoing(target, body, changed, mandatory=True)


def require_size(message: Outgoing, bytes_max: int) -> None:
    """Raise TooLargeError where a body has more bytes than allowed."""
    if len(message.body) > bytes_max:
        raise TooLargeError(
            message.message_id, f"{len(message.body)} bytes, {bytes_max} are allowed"
        )
