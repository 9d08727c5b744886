"""Messages as a look or a search shows them, and the cursors that searches go on from.

A cursor is text that means something to the broker alone: the key of the last message that was
looked at (`leveret.engine.insight.walk`), as JSON in base64.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException

from leveret.engine.history.life_events import copy_id
from leveret.engine.insight.filters import SCHEDULED, STATES, UNACKED, UNKNOWN_AGE, age_of
from leveret.engine.insight.walk import Cursor, Found, arrived_ms
from leveret.engine.message import REDELIVERED, Holder, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Consumer, Session
from leveret.http.management.message_shapes import encode_payload, shown_properties
from leveret.wire.properties import decode_properties

_KEY_MAX: Final = 1 << 62
_ID_DIGITS_MAX: Final = 19

Encoded = tuple[int, str, int, int, int, int]


class HolderInfo(msgspec.Struct, omit_defaults=True):
    """Who holds a message in flight."""

    connection: str
    channel: int
    consumer_tag: str  # empty: it was taken by basic.get
    user: str


class Seen(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One message."""

    id: str  # names this copy for as long as it is in its queue
    state: str  # ready, scheduled, unacked, stuck
    exchange: str
    routing_key: str
    redelivered: bool
    deliveries: int  # how often it has been delivered so far
    properties: dict[str, object]
    payload_bytes: int
    payload: str
    payload_encoding: str  # string, base64
    age_ms: int | None = None  # since it came, or by its timestamp; left out where nothing tells
    message_count: int | None = None  # of a look: ready messages behind this one
    due_at_ms: int | None = None  # scheduled
    holder: HolderInfo | None = None  # unacked
    held_ms: int | None = None  # unacked: since the delivery


def seen(queue: Queue, found: Found, truncate: int, is_binary: bool) -> Seen:
    """A message that a walk has found."""
    shown = seen_message(queue, found.message, found.state, truncate, is_binary)
    if found.state == SCHEDULED:
        shown.due_at_ms = found.time_ms
    elif found.state == UNACKED:
        assert found.session is not None
        shown.holder = holder_info(found.message.holder, found.session)
        shown.held_ms = max(queue.turn.now_ms - found.time_ms, 0)
        shown.deliveries += 1
    return shown


def seen_message(
    queue: Queue, message: Message, state: str, truncate: int, is_binary: bool
) -> Seen:
    payload, encoding = encode_payload(message.body[:truncate], is_binary)
    now_ms = queue.turn.now_ms
    age_ms = age_of(message, arrived_ms(queue, message.seq), now_ms)
    return Seen(
        id=message_id(queue, message.seq),
        state=state,
        exchange=printable(message.address.exchange),
        routing_key=printable(message.address.routing_key),
        redelivered=message.flags & REDELIVERED != 0,
        deliveries=message.returns,
        properties=shown_properties(decode_properties(message.header)),
        payload_bytes=len(message.body),
        payload=payload,
        payload_encoding=encoding,
        age_ms=age_ms if age_ms != UNKNOWN_AGE else None,
    )


def holder_info(holder: Holder | None, session: Session) -> HolderInfo:
    return HolderInfo(
        connection=session.outlet.name,
        channel=session.number,
        consumer_tag=printable(holder.tag) if isinstance(holder, Consumer) else "",
        user=printable(session.outlet.user_name),
    )


def message_id(queue: Queue, seq: int) -> str:
    """The id of a copy: the number of its queue in the log, and its own there."""
    return str(copy_id(queue.ledger.id, seq))


def parse_id(text: str) -> int:
    """An id as a number; 400 where it is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > _ID_DIGITS_MAX:
        raise HTTPException(400, f"the id of a message is a number, not {text[:40]!r}")
    return min(int(text), _KEY_MAX)


def printable(text: str) -> str:
    """Bytes that are no text, which AMQP allows in names, are shown as U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# Cursors


def encode_cursor(cursor: Cursor) -> Encoded:
    return (
        cursor.state,
        cursor.name,
        cursor.major,
        cursor.minor,
        cursor.end,
        cursor.return_end,
    )


def decode_cursor(encoded: Encoded) -> Cursor:
    """The cursor that was encoded; 400 where it cannot be one."""
    cursor = Cursor()
    state, cursor.name, *keys = encoded
    if not 0 <= state <= len(STATES) or any(abs(key) > _KEY_MAX for key in keys):
        raise no_cursor()
    cursor.state = state
    cursor.major, cursor.minor, cursor.end, cursor.return_end = keys
    return cursor


def write_cursor(value: object) -> str:
    """Anything that JSON can carry, as the text of a cursor."""
    return urlsafe_b64encode(msgspec.json.encode(value)).decode()


def read_cursor(text: str, kind: Any) -> Any:
    """What was written; 400 where the text is no cursor."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text), type=kind)
    except (binascii.Error, ValueError, RecursionError):
        raise no_cursor() from None


def no_cursor() -> HTTPException:
    return HTTPException(400, "the cursor is not one that a request of this kind has answered")
