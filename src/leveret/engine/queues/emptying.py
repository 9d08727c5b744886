"""Forgetting what a queue holds: what is ready when it is purged, everything when it is deleted.

Messages are forgotten where they stand, in memory or as positions in the log, and freed in slices
(`Trash`): a queue of a million messages does not stop the others. What is in flight stays with its
sessions: a deleted queue keeps its slot until the last of it is settled.
"""

from leveret.engine.backlog.ready import Ready
from leveret.engine.history.life_events import DELETED, PURGED
from leveret.engine.queues.state import QueueState
from leveret.engine.queues.telling import note_ready_gone, note_scheduled_gone


def drop_ready(queue: QueueState) -> int:
    """Drop every ready message, and begin with empty lines; how many they were."""
    old = queue.ready
    if queue.chronicle is not None:
        note_ready_gone(queue, PURGED)
    _forget_ready(queue)
    queue.ready = Ready(prioritised=old.prioritised, returns_first=old.returns_first)
    queue.ready.pages = old.pages
    queue.ready.window = old.window
    if old.fair_lines is not None:
        queue.ready.open_fair_lines()
    queue.ready.damaged = old.damaged  # unread and unexplained: a purge is not meant for them
    queue.purged += old.count
    queue.turn.lazy_free.add(old.messages_held())
    return old.count


def drop_everything(queue: QueueState) -> None:
    """The queue is deleted: nothing of it is ready, scheduled or set aside any more."""
    queue.ledger.closed = True
    if queue.chronicle is not None:
        note_ready_gone(queue, DELETED)
        note_scheduled_gone(queue)
    _forget_ready(queue)
    _forget_damaged(queue)
    _forget_scheduled(queue)
    queue.deleted = True
    queue.turn.lazy_free.add(queue.ready.messages_held())
    queue.turn.lazy_free.add(queue.scheduled.clear())
    queue.ready = Ready(prioritised=False, returns_first=False)


def _forget_ready(queue: QueueState) -> None:
    """Everything ready is gone, whether it is in memory or in the log."""
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
