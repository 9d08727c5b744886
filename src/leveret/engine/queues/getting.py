"""Take single messages from a queue: for `basic.get`, and for leases.

A message that was taken is in flight like a delivery. The `getter` of its session holds it. A
session that takes messages this way has no prefetch window and no place in the round robin: it
asks, and gets the message at the head.
"""

from mypy_extensions import i64

from leveret.engine.message import REDELIVERED, Message
from leveret.engine.queues.chronicle_notes import note_delivered
from leveret.engine.queues.lifetimes import expire_heads
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.rescue import rescue
from leveret.engine.turns.session import Session
from leveret.errors import CorruptionError


def take_next(session: Session, queue: Queue, *, no_ack: bool) -> Message | None:
    """Take the next message of a queue, which must not be a stream. Return None if it is empty."""
    while True:
        try:
            return _take_next(session, queue, no_ack)
        except CorruptionError as fault:
            queue.note_damage(fault)


def _take_next(session: Session, queue: Queue, no_ack: bool) -> Message | None:
    queue.used_ms = queue.turn.now_ms
    queue.catch_up()
    expire_heads(queue, queue.turn.now_ms)
    if queue.ready.count == 0:
        queue.got_empty += 1
        session.got_empty += 1
        return None
    message = queue.ready.pop()
    try:
        _hand_over(session, queue, message, no_ack)
    except Exception as fault:
        rescue_held(session, queue, message, fault)
        raise
    return message


def rescue_held(session: Session, queue: Queue, message: Message, fault: Exception) -> None:
    """Rescue a message that could not be given to a session, unless the session has it."""
    if session.unacked.find(message.tag) is not message:
        message.holder = None
        rescue(queue, message, fault)


def _hand_over(session: Session, queue: Queue, message: Message, no_ack: bool) -> None:
    expire_heads(queue, queue.turn.now_ms)
    if queue.has_expiries:
        queue.arm()
    session.last_tag += 1
    message.tag = session.last_tag
    if queue.chronicle is not None:
        note_delivered(queue, message, consumer="", no_ack=no_ack)
    if message.flags & REDELIVERED:
        queue.redelivered += 1
        session.redelivered += 1
    if no_ack:
        queue.got_no_ack += 1
        session.got_no_ack += 1
        session.unacked.skip(message.tag)
        queue.ledger.forget(message)
    else:
        queue.got += 1
        session.got += 1
        lend(session, queue, message)


def lend(session: Session, queue: Queue, message: Message) -> None:
    """Put a message in flight, held by the `getter`. It has left its line and has its tag."""
    queue.ledger.note_delivered(message)
    body_bytes: i64 = len(message.body)
    message.holder = session.getter
    session.getter.unacked += 1
    session.getter.unacked_bytes += body_bytes
    timeout_ms = queue.settings.consumer_timeout_ms
    if timeout_ms < 0 or session.has_no_timeout:
        timeout_ms = 0
    queue.hold(session, message, body_bytes, timeout_ms)
