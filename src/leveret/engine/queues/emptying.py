"""Purge and deletion: forget the ready messages, or all messages of a queue.

Messages are forgotten where they are, in memory or as positions in the log, and freed in slices
(`LazyFree`), so that a queue of a million messages does not stop the others. Messages in flight
stay with their sessions: a deleted queue keeps its slot until the last of them is settled.
"""

from typing import Final

from leveret.engine.backlog.ready import Ready
from leveret.engine.history.life_events import DELETED, PURGED
from leveret.engine.queues.chronicle_notes import note_ready_gone, note_scheduled_gone
from leveret.engine.queues.state import QueueState

# To forget this many messages is as much work as one copy of a message. A turn that has emptied
# many queues leaves the rest of its input to the next turn.
FORGOTTEN_PER_COPY: Final = 4


def drop_ready(queue: QueueState) -> int:
    """Drop every ready message, and start with empty lines. Return how many were dropped."""
    old = queue.ready
    if queue.chronicle is not None:
        note_ready_gone(queue, PURGED)
    _forget_ready(queue)
    queue.ready = Ready(prioritised=old.prioritised, returns_first=old.returns_first)
    queue.ready.pages = old.pages
    queue.ready.window = old.window
    if old.fair_lines is not None:
        queue.ready.open_fair_lines()
    queue.ready.damaged = old.damaged  # a purge keeps unreadable messages
    queue.purged += old.count
    queue.turn.work += old.count // FORGOTTEN_PER_COPY
    queue.turn.lazy_free.add(old.messages_held())
    return old.count


def drop_everything(queue: QueueState) -> None:
    """Forget all messages of a deleted queue: ready, scheduled and unreadable ones."""
    queue.ledger.closed = True
    if queue.chronicle is not None:
        note_ready_gone(queue, DELETED)
        note_scheduled_gone(queue)
    _forget_ready(queue)
    _forget_damaged(queue)
    _forget_scheduled(queue)
    queue.deleted = True
    queue.turn.work += queue.ready.count // FORGOTTEN_PER_COPY
    queue.turn.lazy_free.add(queue.ready.messages_held())
    queue.turn.lazy_free.add(queue.scheduled.clear())
    queue.ready = Ready(prioritised=False, returns_first=False)


def _forget_ready(queue: QueueState) -> None:
    """Tell the ledger that all ready messages are gone, in memory and in the log."""
    if queue.ledger.journal is None:
        return
    for message in queue.ready.messages():
        queue.ledger.forget(message)
    for run in queue.ready.paged_runs():
        queue.ledger.forget_run(run)


def _forget_damaged(queue: QueueState) -> None:
    if queue.ledger.journal is not None:
        for run in queue.ready.damaged:
            queue.ledger.forget_run(run)


def _forget_scheduled(queue: QueueState) -> None:
    for message in queue.scheduled.messages():
        queue.ledger.forget(message)
    if queue.ledger.journal is not None and queue.scheduled.in_log.count != 0:
        queue.ledger.drop_counts(queue.scheduled.in_log.counts())
