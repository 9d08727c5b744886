"""Settling deliveries: ack, reject, requeue, and taking back messages that were held too long.

Every function first takes the messages from the session, which raises for an unknown tag before
anything has changed. Then it moves each message in its queue. `Queue.settle` gives the holder room
in its prefetch window.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.commands.consuming import CONSUMERS_PER_COPY
from leveret.engine.history.life_events import ACKED, DELETED, NACKED, REJECTED
from leveret.engine.history.life_events import TIMED_OUT as LATE
from leveret.engine.message import Address, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.rescue import rescue
from leveret.engine.queues.slots import Slots
from leveret.engine.timer_queue import NEVER
from leveret.engine.turns.session import TIMED_OUT, Consumer, Session
from leveret.engine.turns.turn import WORK_MAX, Turn
from leveret.errors import PreconditionFailedError

SETTLED_PER_COPY: Final = 4  # settled messages that are as much work as one copy (`WORK_MAX`)
STRAGGLERS_PER_COPY: Final = 20  # the same for old deliveries that a multiple ack looks at
SETTLED_MAX: Final = WORK_MAX * SETTLED_PER_COPY  # messages that fill a turn

# Replaces a message that was taken back from its holder. A late ack is accepted and does nothing.
_NO_QUEUE: Final = -1
_TAKEN_BACK: Final = Message(Address("", ""), b"", b"", 0, 0, 0, 0, _NO_QUEUE)


def ack(slots: Slots, session: Session, tag: i64, *, multiple: bool) -> None:
    """Acknowledge a delivery, or all deliveries up to a tag."""
    if multiple:
        messages = take_through(session, tag)
        session.turn.work += len(messages) // SETTLED_PER_COPY
        session.acked += len(messages)
        try:
            for message in messages:
                _ack_one(slots, message, is_moved=False)
        except Exception:
            _restore(session, messages)
            raise
    else:
        message = _take_one(session, tag)
        session.acked += 1
        try:
            _ack_one(slots, message, is_moved=False)
        except Exception:
            _restore(session, [message])
            raise


def ack_taken(slots: Slots, messages: list[Message]) -> None:
    """Acknowledge messages that were taken from their session, in the block of this turn."""
    for message in messages:
        _ack_one(slots, message, is_moved=True)


def _ack_one(slots: Slots, message: Message, *, is_moved: bool) -> None:
    if message.queue == _NO_QUEUE:
        return
    queue = slots.queue(message.queue)
    if is_moved:
        queue.ledger.hand_over(message)
    else:
        queue.ledger.forget(message)
    queue.acked += 1
    if queue.chronicle is not None:
        queue.note(ACKED, message, "")
    queue.settle(message)
    if queue.deleted and queue.unacked == 0:
        slots.release(queue.slot)


def reject(
    slots: Slots, session: Session, tag: i64, *, multiple: bool, requeue: bool, failed: bool
) -> None:
    """Requeue deliveries, or let them leave their queues.

    `failed` says whether a requeue counts against the delivery limit: `basic.reject` does,
    `basic.nack` does not (RabbitMQ 4.3).
    """
    messages = take(session, tag, multiple)
    session.turn.work += len(messages) // SETTLED_PER_COPY
    try:
        reject_taken(slots, messages, requeue=requeue, failed=failed)
    except Exception:
        _restore(session, messages)
        raise


def _restore(session: Session, messages: list[Message]) -> None:
    """Put messages that could not be settled, because of a fault, back under their tags."""
    for message in messages:
        if message.queue != _NO_QUEUE and message.holder is not None:
            session.unacked.restore(message)


def reject_taken(slots: Slots, messages: list[Message], *, requeue: bool, failed: bool) -> None:
    """Reject messages that were taken from their session."""
    for message in messages:
        if message.queue != _NO_QUEUE:
            queue = slots.queue(message.queue)
            if queue.chronicle is not None:
                queue.note(REJECTED if failed else NACKED, message, "")
    if requeue:
        _catch_up(slots, messages)
        give_back(slots, messages, failed=failed)
    else:
        _discard(slots, messages)


def _catch_up(slots: Slots, messages: list[Message]) -> None:
    """Deliver earlier messages of this turn first, so that they do not count to a limit."""
    for message in messages:
        if message.queue != _NO_QUEUE:
            queue = slots.queue(message.queue)
            if queue.limited and not queue.deleted:
                queue.catch_up()


def _discard(slots: Slots, messages: list[Message]) -> None:
    for message in messages:
        if message.queue == _NO_QUEUE:
            continue
        queue = slots.queue(message.queue)
        queue.settle(message)
        if not queue.deleted:
            try:
                queue.discard(message)
            except Exception as fault:
                rescue(queue, message, fault)
            continue
        queue.note(DELETED, message, "")
        queue.ledger.forget(message)
        if queue.unacked == 0:
            slots.release(queue.slot)


def give_back(slots: Slots, messages: list[Message], *, failed: bool) -> None:
    """Return messages to their queues.

    First all messages are settled, and last the length limits are applied. So nothing is delivered
    in between, and order is kept.
    """
    for message in messages:
        if message.queue != _NO_QUEUE:
            queue = slots.queue(message.queue)
            try:
                queue.settle(message)
            except Exception as fault:
                if message.holder is not None:  # `settle` has changed nothing
                    message.holder = None
                    queue.unacked -= 1
                    queue.unacked_bytes -= len(message.body)
                    queue.unacked_header_bytes -= len(message.header)
                queue.turn.note_fault(f"settling a message of queue '{queue.name}'", fault)
    for message in messages:
        if message.queue == _NO_QUEUE:
            continue
        queue = slots.queue(message.queue)
        if queue.deleted:
            queue.note(DELETED, message, "")
            queue.ledger.forget(message)
        else:
            try:
                queue.put_back(message, failed=failed)
            except Exception as fault:
                rescue(queue, message, fault)
    for message in messages:
        if message.queue != _NO_QUEUE:
            returned_to = slots.queues[message.queue]
            if returned_to is not None:
                _after_return(slots, returned_to)


def _after_return(slots: Slots, queue: Queue) -> None:
    if not queue.deleted:
        queue.drop_returned()
    elif queue.unacked == 0:
        slots.release(queue.slot)


def recover(slots: Slots, session: Session) -> None:
    """Requeue everything that is in flight on the session."""
    messages = session.unacked.take_all()
    session.turn.work += len(messages) // SETTLED_PER_COPY
    try:
        _catch_up(slots, messages)
        give_back(slots, messages, failed=False)
    except Exception:
        _restore(session, messages)
        raise


def take(session: Session, tag: i64, multiple: bool) -> list[Message]:
    """Take the messages of a tag from the session. They stay in flight."""
    return take_through(session, tag) if multiple else [_take_one(session, tag)]


def _take_one(session: Session, tag: i64) -> Message:
    message = session.unacked.take(tag)
    if message is None:
        raise PreconditionFailedError(f"unknown delivery tag {tag}")
    return message


def take_through(session: Session, tag: i64) -> list[Message]:
    """Take all messages up to a tag; 0 means all messages."""
    unacked = session.unacked
    if unacked.stragglers:
        session.turn.work += len(unacked.stragglers) // STRAGGLERS_PER_COPY
    if tag == 0:
        return unacked.take_all()
    require_unacked(session, tag)
    return unacked.take_through(tag)


def require_unacked(session: Session, tag: i64) -> None:
    """Raise PreconditionFailedError unless this delivery is in flight."""
    if session.unacked.find(tag) is None:
        raise PreconditionFailedError(f"unknown delivery tag {tag}")


def close_session(slots: Slots, session: Session) -> None:
    """End a session and its consumers. Its messages go back, which counts as a failure."""
    session.closed = True
    session.turn.timers.disarm(session)
    end_consumers(slots, [session])
    session.unsent = []
    give_back(slots, session.unacked.take_all(), failed=True)


def end_consumers(slots: Slots, sessions: list[Session]) -> None:
    """End every subscription of some sessions.

    Each queue removes all of them in one pass: a connection may have thousands of channels, and a
    queue a hundred thousand consumers.
    """
    by_queue: dict[int, list[Consumer]] = {}
    for session in sessions:
        for consumer in session.consumers.values():
            by_queue.setdefault(consumer.queue, []).append(consumer)
        session.consumers.clear()
    for slot, consumers in by_queue.items():
        queue = slots.queue(slot)
        queue.turn.work += len(queue.consumers) // CONSUMERS_PER_COPY
        try:
            if len(consumers) == 1:
                queue.remove_consumer(consumers[0])
            else:
                queue.remove_consumers(consumers)
        except Exception as fault:  # the messages of the session must go back all the same
            queue.turn.note_fault(f"removing a consumer of queue '{queue.name}'", fault)


def end_consumer(slots: Slots, session: Session, consumer: Consumer, reason: i64) -> None:
    """End a subscription on behalf of the broker, and tell the peer. Messages stay in flight."""
    if session.consumers.get(consumer.tag) is not consumer:
        return  # it has ended already, and another consumer may have its tag
    del session.consumers[consumer.tag]
    consumer.ended = reason
    slots.queue(consumer.queue).remove_consumer(consumer)
    session.turn.ended.append(consumer)


def take_back_late(slots: Slots, turn: Turn) -> None:
    """Take back messages that were held beyond their timeout, and end their consumers."""
    late = turn.late
    turn.late = []
    for session in late:
        assert isinstance(session, Session)
        if not session.closed:
            try:
                _take_back(slots, session)
            except Exception as fault:
                turn.note_fault("taking back messages that were held too long", fault)


def _take_back(slots: Slots, session: Session) -> None:
    turn = session.turn
    overdue: list[Message] = []
    next_ms: i64 = NEVER
    for message in session.unacked.messages():
        timeout_ms = _timeout_ms(slots, message)
        if timeout_ms <= 0:
            continue
        due = message.taken_ms + timeout_ms
        if due <= turn.now_ms:
            overdue.append(message)
        elif next_ms == NEVER or due < next_ms:
            next_ms = due
    for message in overdue:
        session.unacked.replace(message.tag, _TAKEN_BACK)
        queue = slots.queue(message.queue)
        queue.own_losses().timed_out += 1
        turn.losses.timed_out += 1
        queue.note(LATE, message, "")
        _end_holder(slots, session, message)
    give_back(slots, overdue, failed=True)
    if next_ms != NEVER:
        turn.timers.arm(session, next_ms)


def _timeout_ms(slots: Slots, message: Message) -> i64:
    """Return how long a message may be held: the consumer's timeout, or for a `get` the queue's."""
    holder = message.holder
    if holder is None:
        return 0
    if isinstance(holder, Consumer):
        return holder.timeout_ms
    return slots.queue(message.queue).settings.consumer_timeout_ms


def _end_holder(slots: Slots, session: Session, message: Message) -> None:
    """End the consumer that held a message for too long."""
    consumer = message.holder
    if isinstance(consumer, Consumer) and consumer.ended == 0:
        end_consumer(slots, session, consumer, TIMED_OUT)
