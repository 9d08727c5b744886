"""The length limits of a queue: whether it is full, and what goes when it is.

RabbitMQ: what a consumer can take does not count. So `Queue` delivers before it asks a second time,
and only what nobody took is refused (`reject-publish`) or dropped from the head (`drop-head`).

Scheduled messages and those in flight are not counted; stuck dead letters are.
"""

from mypy_extensions import i64

from leveret.engine.arguments.queue_arguments import REJECT_PUBLISH_DLX
from leveret.engine.history.life_events import DROPPED
from leveret.engine.message import Message
from leveret.engine.queues.state import BATCH, QueueState
from leveret.engine.queues.telling import note_queued
from leveret.engine.turns.loss_counts import REFUSED
from leveret.engine.turns.session import MAXLEN
from leveret.errors import CorruptionError


def is_over(queue: QueueState, more: i64, more_bytes: i64) -> bool:
    """Whether so many messages more are too many."""
    limits = queue.settings
    ready = queue.ready
    if limits.max_length >= 0 and ready.count + queue.stuck + more > limits.max_length:
        return True
    return limits.max_bytes >= 0 and ready.body_bytes + more_bytes > limits.max_bytes


def refuse(queue: QueueState, message: Message) -> None:
    """A message does not get in."""
    queue.refused += 1
    if queue.chronicle is not None:
        note_queued(queue, message)
    if queue.settings.overflow == REJECT_PUBLISH_DLX:
        queue.leave(message, MAXLEN)
    else:
        queue.count_dropped(REFUSED)
        queue.note(DROPPED, message, MAXLEN)
        queue.ledger.forget(message)


def drop_heads(queue: QueueState) -> None:
    """Drop from the head, young or old, until the limits are kept."""
    left = BATCH
    while queue.ready.count != 0 and is_over(queue, 0, 0):
        if left == 0:  # the limit is new: the rest in another turn
            queue.turn.timers.arm(queue.timer, queue.turn.now_ms)
            return
        left -= 1
        try:
            message = queue.ready.pop()
        except CorruptionError as fault:
            queue.note_damage(fault)
            continue
        queue.dropped += 1
        queue.leave(message, MAXLEN)
