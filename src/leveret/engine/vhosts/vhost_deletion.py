"""Delete a vhost and everything in it.

The log gets the deletion at once, in one block: a start finds the vhost whole or not at all.
Streams are closed at once, because their segments are files. All other queues are closed in slices
on the timer, so that a vhost of ten thousand queues does not stop the others.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.timer_queue import NEVER, Timed
from leveret.engine.vhosts.definition_records import encode_queue_deletion, encode_vhost_deletion
from leveret.engine.vhosts.queue_creation import close_queue
from leveret.engine.vhosts.vhost import Vhost

SLICE: Final = 64  # queues closed by one wake-up: a few milliseconds


class VhostDeletion(Timed):
    """The queues of a deleted vhost that are still to be closed. Clients cannot reach them."""

    def __init__(self, vhost: Vhost) -> None:
        super().__init__()
        self._vhost = vhost
        self._open_queues: list[Queue] = list(vhost.queues.values())
        self._open_queues.extend(vhost.holding.values())
        self._write()
        self._forget_names()

    def _write(self) -> None:
        journal = self._vhost.turn.journal
        if journal is None:
            return
        for queue in self._vhost.queues.values():
            if queue.durable:
                journal.write_definition(encode_queue_deletion(queue))
        journal.write_definition(encode_vhost_deletion(self._vhost.name))

    def _forget_names(self) -> None:
        vhost = self._vhost
        for exchange in vhost.exchanges.values():
            if exchange.deduplication is not None:
                exchange.deduplication.close()
        for queue in self._open_queues:
            if queue.owner is not None:
                queue.owner.exclusive_queues.pop(queue.name, None)
        vhost.exchanges.clear()
        vhost.queues.clear()
        vhost.definition_bytes = 0
        vhost.targets.clear()
        vhost.holding.clear()
        vhost.sources.clear()
        vhost.replies.clear()
        vhost.stuck.clear()
        vhost.version += 1

    def start(self) -> None:
        """Close the streams. While a start restores definitions, close all queues."""
        streams = [queue for queue in self._open_queues if isinstance(queue, Stream)]
        for stream in streams:
            close_queue(self._vhost, stream)
        self._open_queues = [queue for queue in self._open_queues if not queue.deleted]
        if self._vhost.turn.is_restoring:
            self._close(len(self._open_queues))
        elif self._open_queues:
            self._vhost.turn.timers.arm(self, self._vhost.turn.now_ms)

    def on_due(self, now_ms: i64) -> i64:
        self._close(SLICE)
        return now_ms if self._open_queues else NEVER

    def _close(self, count_max: int) -> None:
        while self._open_queues and count_max > 0:
            close_queue(self._vhost, self._open_queues.pop())
            count_max -= 1
