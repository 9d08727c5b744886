"""Taking down a vhost that is deleted.

The log knows at once, in one block: a start finds the vhost whole or not at all. Streams go with
it, because their segments are files. All other queues are closed in slices, with every beat of the
pulse, so that a vhost of ten thousand queues does not stop the others.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.timer_queue import NEVER, Timed
from leveret.engine.vhosts.definition_records import queue_gone, vhost_gone
from leveret.engine.vhosts.making import close_queue
from leveret.engine.vhosts.vhost import Vhost

SLICE: Final = 64  # queues of one beat: a few milliseconds


class Demolition(Timed):
    """What is left of one vhost. Nobody can reach it any more."""

    def __init__(self, vhost: Vhost) -> None:
        super().__init__()
        self._vhost = vhost
        self._left: list[Queue] = list(vhost.queues.values())
        self._left.extend(vhost.holding.values())
        self._write()
        self._forget_names()

    def _write(self) -> None:
        journal = self._vhost.turn.journal
        if journal is None:
            return
        for queue in self._vhost.queues.values():
            if queue.durable:
                journal.write_definition(queue_gone(queue))
        journal.write_definition(vhost_gone(self._vhost.name))

    def _forget_names(self) -> None:
        vhost = self._vhost
        for exchange in vhost.exchanges.values():
            if exchange.deduplication is not None:
                exchange.deduplication.close()
        for queue in self._left:
            if queue.owner is not None:
                queue.owner.exclusive_queues.pop(queue.name, None)
        vhost.exchanges.clear()
        vhost.queues.clear()
        vhost.targets.clear()
        vhost.holding.clear()
        vhost.sources.clear()
        vhost.replies.clear()
        vhost.stuck.clear()
        vhost.version += 1

    def start(self) -> None:
        """Close what cannot wait; while a start restores definitions, that is everything."""
        streams = [queue for queue in self._left if isinstance(queue, Stream)]
        for stream in streams:
            close_queue(self._vhost, stream)
        self._left = [queue for queue in self._left if not queue.deleted]
        if self._vhost.turn.is_restoring:
            self._close(len(self._left))
        elif self._left:
            self._vhost.turn.timers.arm(self, self._vhost.turn.now_ms)

    def on_due(self, now_ms: i64) -> i64:
        self._close(SLICE)
        return now_ms if self._left else NEVER

    def _close(self, most: int) -> None:
        while self._left and most > 0:
            close_queue(self._vhost, self._left.pop())
            most -= 1
