"""Consuming: subscriptions, single gets, prefetch, and the credit of an outlet."""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import pack, require_modest
from leveret.engine.arguments.queue_arguments import consumer_settings
from leveret.engine.message import Message
from leveret.engine.queues.getting import take_next
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.slots import Slots
from leveret.engine.streams.reader import Reader
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Consumer, Outlet, Session
from leveret.errors import (
    AccessRefusedError,
    NotAllowedError,
    PreconditionFailedError,
    ResourceLockedError,
    UnsupportedError,
)
from leveret.wire.tables import Table

# To examine this many consumers is as much work as one copy of a message.
CONSUMERS_PER_COPY: Final = 50


def consume(
    session: Session,
    queue: Queue,
    tag: str,
    *,
    no_ack: bool,
    arguments: Table,
    timeout_ms: i64,
    exclusive: bool = False,
) -> Consumer:
    """Subscribe a session to a queue. `timeout_ms` is the node's default for quorum queues."""
    require_new_tag(session, tag)
    session.turn.consumer_room.require(session.outlet.user_name)
    require_modest(f"consumer '{tag}'", arguments)
    if isinstance(queue, Stream):
        return follow(session, queue, tag, no_ack, arguments)
    settings = consumer_settings(queue.name, queue.vhost, queue.settings.kind, arguments)
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if queue.is_quorum and (session.shared_prefetch != 0 or session.shared_prefetch_bytes != 0):
        raise UnsupportedError(f"{where} does not support global qos")
    exclusive = exclusive and not queue.is_quorum  # RabbitMQ: quorum queues ignore the flag
    if queue.subscribers.has_exclusive or (
        exclusive and (queue.consumers or queue.settings.single_active)
    ):
        raise AccessRefusedError(f"{where} in exclusive use")
    consumer = Consumer(session, queue.slot, tag, no_ack=no_ack, exclusive=exclusive)
    consumer.packed_arguments = pack(arguments)
    consumer.priority = settings.priority
    consumer.own_timeout_ms = settings.timeout_ms
    consumer.node_timeout_ms = timeout_ms if queue.is_quorum else 0
    consumer.set_timeout(queue.settings.consumer_timeout_ms)
    queue.add_consumer(consumer)
    session.consumers[tag] = consumer
    return consumer


def follow(session: Session, stream: Stream, tag: str, no_ack: bool, arguments: Table) -> Consumer:
    """Subscribe a session to a stream."""
    where = f"queue '{stream.name}' in vhost '{stream.vhost}'"
    if session.prefetch == 0:
        raise PreconditionFailedError(f"consumer prefetch count is not set for '{where}'")
    if no_ack:
        raise UnsupportedError(f"automatic acknowledgement not supported by stream queues {where}")
    if session.shared_prefetch != 0 or session.shared_prefetch_bytes != 0:
        raise UnsupportedError(f"{where} does not support global qos")
    settings = consumer_settings(stream.name, stream.vhost, stream.settings.kind, arguments)
    if settings.stream_cursor:
        stream.cursors.require_room(settings.stream_cursor)
    reader = Reader(session, stream.slot, tag, False)
    reader.packed_arguments = pack(arguments)
    reader.filters = settings.stream_filters
    reader.match_unfiltered = settings.match_unfiltered
    reader.cursor = settings.stream_cursor
    stream.start(reader, settings.stream_offset)
    session.consumers[tag] = reader
    stream.add_consumer(reader)
    return reader


def require_new_tag(session: Session, tag: str) -> None:
    if tag in session.consumers:
        raise NotAllowedError(f"attempt to reuse consumer tag '{tag}'")


def cancel(slots: Slots, session: Session, tag: str) -> None:
    """End a subscription. Its messages stay in flight. An unknown tag is no error."""
    consumer = session.consumers.pop(tag, None)
    if consumer is not None:
        queue = slots.queue(consumer.queue)
        session.turn.work += len(queue.consumers) // CONSUMERS_PER_COPY
        queue.remove_consumer(consumer)


def get(session: Session, queue: Queue, no_ack: bool) -> Message | None:
    """Take the next ready message. Return None if there is none."""
    if queue.is_quorum and queue.settings.single_active:
        raise ResourceLockedError(
            f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. "
            "basic.get operations are not supported by quorum queues with single active consumer"
        )
    if isinstance(queue, Stream):
        raise queue.unsupported("basic.get")
    return take_next(session, queue, no_ack=no_ack)


def set_prefetch(slots: Slots, session: Session, *, count: i64, size: i64, shared: bool) -> None:
    """Limit the messages in flight, for each later consumer or for the session (`shared`).

    RabbitMQ: a limit for each later consumer ends the limit of the session.
    """
    if not shared:
        session.prefetch = count
        session.prefetch_bytes = size
        count = size = 0
    session.shared_prefetch = count
    session.shared_prefetch_bytes = size
    session.turn.work += len(session.consumers) // CONSUMERS_PER_COPY
    resume_suspended(slots, session)


def resume_suspended(slots: Slots, session: Session) -> None:
    """Let the session's suspended consumers try again."""
    for consumer in session.consumers.values():
        if consumer.suspended:
            slots.queue(consumer.queue).resume_consumer(consumer)


def refill(slots: Slots, outlet: Outlet, credit: i64) -> None:
    """Set the credit of an outlet whose peer has read, and wake its starved consumers."""
    outlet.credit = credit
    if outlet.starved:
        starved = outlet.starved
        outlet.starved = []
        for consumer in starved:
            if consumer.suspended:
                slots.queue(consumer.queue).resume_consumer(consumer)
