"""Explain why one message does not move. See `explain_queue` for the reasons of its queue."""

from mypy_extensions import i64

from leveret.engine.history.life_events import copy_id
from leveret.engine.insight.explain_queue import (
    BEHIND,
    DELAYED_UNTIL,
    HIGHER_PRIORITY_AHEAD,
    NOT_FOUND,
    PARKED,
    QUARANTINED,
    UNACKED,
    Explanation,
    Reason,
    counted,
    not_synced,
    shown_consumer,
    shown_time,
    standing_reasons,
    stuck,
)
from leveret.engine.insight.filters import READY, SCHEDULED
from leveret.engine.insight.locating import MessageLocation, is_damaged, locate
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.stuck_dead_letters import StuckDeadLetters
from leveret.engine.streams.reader import Reader
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Consumer, Session
from leveret.engine.vhosts.queue_creation import PARKED as PARKED_QUEUE


def explain_message(
    queue: Queue,
    dead_letters: StuckDeadLetters,
    seq: i64,
    held: Message | None,
    holder: Session | None,
) -> Explanation:
    """Explain why a message does not move. `held` and `holder` are set if it is in flight."""
    if isinstance(queue, Stream):
        return _in_stream(queue, seq)
    if held is not None and holder is not None:
        return Explanation(False, [unacked(queue, held, holder)])
    location = locate(queue, dead_letters, seq)
    if location is not None:
        return _explain_location(queue, location)
    if is_damaged(queue, seq):
        text = "The message cannot be read, because the log is damaged where it stands."
        return Explanation(False, [Reason(QUARANTINED, text, {"damage": list(queue.damage)})])
    return Explanation(False, [_not_found(queue, seq)])


def _explain_location(queue: Queue, location: MessageLocation) -> Explanation:
    if location.state == READY:
        standing = standing_reasons(queue)
        parked = [_parked()] if queue.name == PARKED_QUEUE else []
        return Explanation(not standing, parked + _ahead(location) + standing)
    if location.state == SCHEDULED:
        return Explanation(False, [_due(location.due_ms, queue.turn.now_ms)])
    return Explanation(False, [stuck(queue, 1)])


def _parked() -> Reason:
    text = (
        "The broker parked this message. Its header x-parked-reason says why: a dead-letter cycle "
        "or a fault of the broker; x-parked-queue names its queue. Without these headers it "
        "exceeded its delivery limit, and x-death says where."
    )
    return Reason(PARKED, text, {})


def _ahead(location: MessageLocation) -> list[Reason]:
    reasons: list[Reason] = []
    if location.ahead_higher != 0:
        text = f"Served first by their priority: {counted(location.ahead_higher, 'message')}."
        reasons.append(Reason(HIGHER_PRIORITY_AHEAD, text, {"ahead": int(location.ahead_higher)}))
    if location.ahead != 0:
        text = f"In the queue before this message: {counted(location.ahead, 'message')}."
        reasons.append(Reason(BEHIND, text, {"ahead": int(location.ahead)}))
    return reasons


def _due(due_ms: i64, now_ms: i64) -> Reason:
    left_ms = max(due_ms - now_ms, 0)
    text = f"The message is held back; it is due in {shown_time(left_ms)}."
    return Reason(DELAYED_UNTIL, text, {"due_at_ms": int(due_ms), "in_ms": int(left_ms)})


def unacked(queue: Queue, message: Message, session: Session) -> Reason:
    """Return the reason for a message in flight: its holder."""
    age_ms = max(queue.turn.now_ms - message.taken_ms, 0)
    consumer = message.holder
    if isinstance(consumer, Consumer):
        holder = shown_consumer(queue, consumer)
        who = f"Consumer '{consumer.tag}'"
    else:
        holder = {
            "connection": session.outlet.name,
            "channel": int(session.number),
            "consumer_tag": "",
            "user": session.outlet.user_name,
        }
        who = "A client that took it by basic.get"
        if session.has_no_timeout:
            who = f"The {session.outlet.name}"
    text = f"{who} has held the message for {shown_time(age_ms)} and not acknowledged it."
    return Reason(UNACKED, text, {"holder": holder, "age_ms": int(age_ms)})


def _not_found(queue: Queue, seq: i64) -> Reason:
    text = "The message is not in the queue any more."
    if seq >= queue.next_seq:
        text = "No message of this id has been in the queue."
    return Reason(NOT_FOUND, text, {"id": str(copy_id(queue.ledger.id, seq))})


def _in_stream(stream: Stream, offset: i64) -> Explanation:
    """Explain a message of a stream. It stays, and each reader passes it."""
    if offset < stream.first_offset or offset >= stream.writer.next_offset:
        text = "The stream has forgotten the message, as its limits ask for."
        if offset >= stream.writer.next_offset:
            text = "No message of this id has been in the stream."
        details: dict[str, object] = {"id": str(copy_id(stream.ledger.id, offset))}
        return Explanation(False, [Reason(NOT_FOUND, text, details)])
    if offset >= stream.end_offset:
        return Explanation(False, [not_synced(stream)])
    reasons = standing_reasons(stream)
    late = [c for c in stream.consumers if isinstance(c, Reader) and c.offset <= offset]
    if late:
        nearest: i64 = late[0].offset
        for reader in late:
            nearest = max(nearest, reader.offset)
        text = f"Still to read the message: {counted(len(late), 'consumer')} of the stream."
        reasons.insert(0, Reason(BEHIND, text, {"ahead": int(offset - nearest)}))
    return Explanation(not reasons or (len(reasons) == 1 and bool(late)), reasons)
