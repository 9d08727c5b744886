"""Slots: short numbers by which messages and consumers refer to their queue.

A number is used again only when its queue is deleted and none of its messages is in flight. So the
slot in a live message always leads to its own queue.
"""

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue


class Slots:
    """Queues by slot."""

    def __init__(self) -> None:
        self.queues: list[Queue | None] = []
        self._free: list[int] = []
        self.last_id: i64 = 0  # the last number that `new_id` gave

    def take(self) -> i64:
        """Return a free slot number, for a queue that is being made."""
        if self._free:
            return self._free.pop()
        self.queues.append(None)
        return len(self.queues) - 1

    def new_id(self) -> i64:
        """Return a new number that names a queue for ever."""
        self.last_id += 1
        return self.last_id

    def note_id(self, number: i64) -> None:
        """Note a number that was given before the node was started."""
        self.last_id = max(self.last_id, number)

    def put(self, slot: i64, queue: Queue) -> None:
        assert self.queues[slot] is None
        self.queues[slot] = queue

    def queue(self, slot: i64) -> Queue:
        found = self.queues[slot]
        assert found is not None
        return found

    def release(self, slot: i64) -> None:
        """Free the slot of a deleted queue that has no message in flight."""
        queue = self.queue(slot)
        assert queue.deleted
        assert queue.unacked == 0
        self.queues[slot] = None
        self._free.append(slot)
