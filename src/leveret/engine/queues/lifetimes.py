"""Time in a queue: when messages arrive, fall due and expire, and when the queue itself expires.

An expired message behind a living one waits until it is at the head of its line, as in RabbitMQ. A
scheduled message that falls due goes behind the messages that are ready. A message that came back
before it was scheduled goes to its old place. `Queue.on_due` calls these functions and says when
the queue must be woken next.

Invariant: a message that was scheduled when it was published gets a new sequence number when it
falls due, in the log too. The next start finds it at the same place.
"""

from mypy_extensions import i64

from leveret.engine.history.life_events import copy_id
from leveret.engine.message import LOGGED, Message
from leveret.engine.queues.rescue import rescue
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.timer_queue import NEVER, earlier
from leveret.engine.turns.turn import DUE, EXPIRED
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE


def note_arrivals(queue: QueueState, now_ms: i64) -> None:
    """Record the time of the messages of this turn, unless it is close to the last record."""
    ages = queue.arrival_times
    if ages.wants_mark(now_ms):
        # The look at all lines comes last: a topic may have a line for each of its jobs.
        is_new = queue.unacked == 0 and queue.ready.count <= queue.next_seq - ages.next_seq
        if is_new and queue.ready.oldest_rank() >= ages.next_seq:
            ages.clear()
        journal = queue.ledger.journal
        if journal is not None and queue.durable and journal.size() != 0:
            journal.write_came(queue.ledger.id, [ages.next_seq, now_ms])
        ages.mark(now_ms)
    ages.next_seq = queue.next_seq


def release_due(queue: QueueState, message: Message) -> None:
    """Make a scheduled message ready, or hand it to the delayed exchange that held it."""
    try:
        _release(queue, message)
    except Exception as fault:
        rescue(queue, message, fault)


def _release(queue: QueueState, message: Message) -> None:
    if queue.holds_for is not None:
        queue.leave(message, DUE)
    elif message.returns != 0:
        queue.ready.put_back(message)
    else:
        _renumber(queue, message)
        if queue.ledger.journal is not None and message.position == NOWHERE:
            _keep_due(queue, message)
        queue.ready.push(message)


def _renumber(queue: QueueState, message: Message) -> None:
    """Give a message that was scheduled a place behind the ready messages.

    A message in the log is written again under its new number, so that the next start finds it at
    this place.
    """
    if queue.chronicle is not None:
        number = copy_id(queue.ledger.id, message.seq)
        next_number = copy_id(queue.ledger.id, queue.next_seq)
        queue.chronicle.note_due(number, next_number, queue.name, message.address)
    if message.flags & LOGGED:
        queue.ledger.hand_over(message)
        message.flags &= ~LOGGED
        message.seq = queue.next_seq
        queue.ledger.write_message(message, NEVER)
    else:
        queue.ledger.skip(message.seq)
        message.seq = queue.next_seq
        update_position(queue, message)
    message.rank = queue.next_seq
    queue.next_seq += 1


def _keep_due(queue: QueueState, message: Message) -> None:
    """Spill a transient message that is due, if its line has messages only in the log."""
    if queue.ready.is_full(message.priority):
        queue.ledger.spill(message)


def update_position(queue: QueueState, message: Message) -> None:
    """Correct the position of a message before it is used: its record may have been copied."""
    journal = queue.ledger.journal
    if journal is not None and journal.is_moving:
        message.position = journal.current_position(message.position)


def expire(queue: QueueState, message: Message) -> None:
    """Let an expired message, which was taken from its line, leave the queue."""
    try:
        queue.expired += 1
        queue.leave(message, EXPIRED)
    except Exception as fault:
        rescue(queue, message, fault)


def expire_heads(queue: QueueState, now_ms: i64) -> None:
    """Remove expired messages at the head of each line. Others wait for their turn."""
    left = BATCH
    while left > 0 and queue.ready.count != 0:
        try:
            message = queue.ready.pop_expired(now_ms)
        except CorruptionError as fault:
            queue.note_damage(fault)
            continue
        if message is None:
            return
        expire(queue, message)
        left -= 1


def unused_until_ms(queue: QueueState) -> i64:
    """Return when the unused queue expires. NEVER while it has consumers or is paused."""
    if queue.settings.expires_ms < 0 or queue.subscribers.members or queue.paused:
        return NEVER
    return queue.used_ms + queue.settings.expires_ms


def next_due_ms(queue: QueueState) -> i64:
    """Return when something is due: a scheduled message, an expiry, or the queue itself."""
    due = earlier(unused_until_ms(queue), queue.scheduled.next_due_ms())
    return earlier(due, queue.ready.next_expiry_ms()) if queue.has_expiries else due
