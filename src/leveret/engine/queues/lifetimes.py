"""What time does to a queue: when messages came, fall due and die, and when the queue itself goes.

A message behind a living one waits with its death until it is at the head of its line, as in
RabbitMQ. A scheduled message that is due takes its place behind what is there; one that came back
goes to its old place. `Queue.on_due` puts these together and says when it is to be woken next.

Invariant: what is scheduled for the first time and falls due gets a new sequence number, also in
the log: the next start finds it at the same place.
"""

from mypy_extensions import i64

from leveret.engine.history.life_events import copy_id
from leveret.engine.message import LOGGED, Message
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.timer_queue import NEVER, earlier
from leveret.engine.turns.session import DUE, EXPIRED
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE

# Coming


def note_arrivals(queue: QueueState, now_ms: i64) -> None:
    """Something came in this turn: its time is marked, if it is not close to the last one."""
    ages = queue.arrival_times
    if ages.wants_mark(now_ms):
        if queue.unacked == 0 and queue.ready.oldest_rank() >= ages.next_seq:
            ages.clear()
        journal = queue.ledger.journal
        if journal is not None and queue.durable and journal.size() != 0:
            journal.write_came(queue.ledger.id, [ages.next_seq, now_ms])
        ages.mark(now_ms)
    ages.next_seq = queue.next_seq


# Falling due


def release(queue: QueueState, message: Message) -> None:
    """A scheduled message is due."""
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
    """A message that was scheduled takes its place behind what is there.

    One that stands in the log is written again under its new number: the next start finds it
    at this place, whatever came after it.
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
    """A transient message is due: where its line goes on in the log, it goes there too."""
    if queue.ready.is_full(message.priority):
        queue.ledger.spill(message)


def update_position(queue: QueueState, message: Message) -> None:
    """The position of a message in memory is going to be used: it may have been copied."""
    journal = queue.ledger.journal
    if journal is not None and journal.is_moving:
        message.position = journal.current_position(message.position)


# Dying


def expire(queue: QueueState, message: Message) -> None:
    """A message that was taken from its line is dead."""
    queue.expired += 1
    queue.leave(message, EXPIRED)


def expire_heads(queue: QueueState, now_ms: i64) -> None:
    """Drop what is dead at the head of a line; a message behind a living one waits."""
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


# What is next


def unused_until_ms(queue: QueueState) -> i64:
    """When the queue goes for want of use; NEVER while it has consumers or is paused."""
    if queue.settings.expires_ms < 0 or queue.subscribers.members or queue.paused:
        return NEVER
    return queue.used_ms + queue.settings.expires_ms


def next_due_ms(queue: QueueState) -> i64:
    """When something is due next: a scheduled message, a dead one, or the queue itself."""
    due = earlier(unused_until_ms(queue), queue.scheduled.next_due_ms())
    return earlier(due, queue.ready.next_expiry_ms()) if queue.has_expiries else due
