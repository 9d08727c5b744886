"""The length limits of a queue: whether it is full, and which messages are refused or dropped.

RabbitMQ: messages that a consumer can take do not count. So `Queue` delivers before it asks a
second time, and only the rest is refused (`reject-publish`) or dropped from the head (`drop-head`).

Scheduled messages and messages in flight are not counted. Stuck dead letters are.
"""

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import REJECT_PUBLISH_DLX
from leveret.engine.history.life_events import DROPPED
from leveret.engine.message import Message
from leveret.engine.queues.chronicle_notes import note_queued
from leveret.engine.queues.rescue import rescue
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.turns.loss_counts import PUBLISH_REFUSED
from leveret.engine.turns.turn import MAXLEN
from leveret.errors import CorruptionError


def is_over(queue: QueueState, more: i64, more_bytes: i64) -> bool:
    """Return True if so many messages and bytes more would break a limit."""
    limits = queue.settings
    ready = queue.ready
    if limits.max_length >= 0 and ready.count + queue.stuck + more > limits.max_length:
        return True
    return limits.max_bytes >= 0 and ready.body_bytes + more_bytes > limits.max_bytes


def refuse(queue: QueueState, message: Message) -> None:
    """Refuse a message: dead-letter it or drop it."""
    queue.refused += 1
    if queue.chronicle is not None:
        note_queued(queue, message)
    if queue.settings.overflow == REJECT_PUBLISH_DLX:
        queue.leave(message, MAXLEN)
    else:
        queue.count_dropped(PUBLISH_REFUSED)
        queue.note(DROPPED, message, MAXLEN)
        queue.ledger.forget(message)


def drop_heads(queue: QueueState) -> None:
    """Drop messages from the head, old or new, until the queue is within its limits."""
    left = BATCH
    while queue.ready.count != 0 and is_over(queue, 0, 0):
        if left == 0:  # a new limit can drop many: drop the rest in another turn
            queue.turn.timers.arm(queue.timer, queue.turn.now_ms)
            return
        left -= 1
        try:
            message = queue.ready.pop()
        except CorruptionError as fault:
            queue.note_damage(fault)
            continue
        queue.dropped += 1
        try:
            queue.leave(message, MAXLEN)
        except Exception as fault:
            rescue(queue, message, fault)
