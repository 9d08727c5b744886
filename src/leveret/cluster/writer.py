"""The thread that writes and syncs blocks, one at a time, and reports to the event loop.

A failed write or sync is never tried again, because the content of the disk is unknown then. The
loop is told, and the node ends.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

JOIN_S: Final = 10.0

BlockT = TypeVar("BlockT")


class Writer(Generic[BlockT]):
    """Writes blocks in the order in which they are given."""

    def __init__(
        self,
        write: Callable[[BlockT], None],
        on_written: Callable[[BlockT, Exception | None], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._write = write
        self._on_written = on_written
        self._loop = loop
        self._queue: queue.SimpleQueue[BlockT | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leveret-raft-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, block: BlockT) -> None:
        self._queue.put(block)

    def stop(self) -> bool:
        """Wait until what was given is written; False where the disk takes too long for that."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (block := self._queue.get()) is not None:
            fault: Exception | None = None
            try:
                self._write(block)
            except Exception as found:
                fault = found
            try:
                self._loop.call_soon_threadsafe(self._on_written, block, fault)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            if fault is not None:
                return
