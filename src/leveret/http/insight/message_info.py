"""Messages as peek, search and trace show them, and their ids."""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException

from leveret.engine.history.life_events import copy_id
from leveret.engine.insight.filters import SCHEDULED, UNACKED, UNKNOWN_AGE, age_of
from leveret.engine.insight.walk import FoundMessage, arrived_ms
from leveret.engine.message import REDELIVERED, Holder, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Consumer, Session
from leveret.http.framework.names import printable
from leveret.http.management.message_shapes import payload_start, property_values
from leveret.wire.properties import decode_properties

_ID_MAX: Final = 1 << 62
_ID_DIGITS_MAX: Final = 19


class HolderInfo(msgspec.Struct, omit_defaults=True):
    """The consumer or channel that holds a message in flight."""

    connection: str
    channel: int
    consumer_tag: str  # empty: taken by basic.get
    user: str


class MessageInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One message in any state."""

    id: str  # identifies this copy while it is in its queue
    state: str  # ready, scheduled, unacked, stuck
    exchange: str
    routing_key: str
    redelivered: bool
    deliveries: int  # deliveries so far
    properties: dict[str, object]
    payload_bytes: int
    payload: str
    payload_encoding: str  # string, base64
    age_ms: int | None = None  # since it arrived, or by its timestamp; omitted if unknown
    message_count: int | None = None  # only of peek: ready messages behind this one
    due_at_ms: int | None = None  # only if scheduled
    holder: HolderInfo | None = None  # only if unacked
    held_ms: int | None = None  # only if unacked: since the delivery


def found_info(queue: Queue, found: FoundMessage, truncate: int, is_binary: bool) -> MessageInfo:
    """Return the info of a message that a walk has found."""
    shown = message_info(queue, found.message, found.state, truncate, is_binary)
    if found.state == SCHEDULED:
        shown.due_at_ms = found.time_ms
    elif found.state == UNACKED:
        assert found.session is not None
        shown.holder = holder_info(found.message.holder, found.session)
        shown.held_ms = max(queue.turn.now_ms - found.time_ms, 0)
        shown.deliveries += 1
    return shown


def message_info(
    queue: Queue, message: Message, state: str, truncate: int, is_binary: bool
) -> MessageInfo:
    payload, encoding = payload_start(message.body, truncate, is_binary)
    now_ms = queue.turn.now_ms
    age_ms = age_of(message, arrived_ms(queue, message.seq), now_ms)
    return MessageInfo(
        id=message_id(queue, message.seq),
        state=state,
        exchange=printable(message.address.exchange),
        routing_key=printable(message.address.routing_key),
        redelivered=message.flags & REDELIVERED != 0,
        deliveries=message.returns,
        properties=property_values(decode_properties(message.header)),
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
    """Return the id of a copy: the number of its queue, and its own number there."""
    return str(copy_id(queue.ledger.id, seq))


def parse_id(text: str) -> int:
    """Return an id as a number. Answer 400 if it is not a number."""
    if not (text.isascii() and text.isdigit()) or len(text) > _ID_DIGITS_MAX:
        advice = "`leveret ctl trace` shows the ids of a message by its message_id property"
        raise HTTPException(400, f"the id of a message is a number, not {text[:40]!r}: {advice}")
    return min(int(text), _ID_MAX)
