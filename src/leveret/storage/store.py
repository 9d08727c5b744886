"""The store: puts the log under a broker, and tells whoever waits when it is safe.

At the end of every turn `flush` notes which sessions wait for the block that is being filled, and
sends it on its way. When it is synced, their confirms and commits leave.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.session import Session
from leveret.journal.journal import Journal
from leveret.storage.checkpoint import write_checkpoint
from leveret.storage.disk import Disk, is_full
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.pages import LogPages
from leveret.storage.recovery import Recovered, recover
from leveret.storage.survivors import SPARSE_PERCENT, Survivors

log = logging.getLogger(__name__)

DISK_FULL: Final = "disk"


class Store:
    """Durability of one broker."""

    def __init__(self, disk: Disk, broker: Broker) -> None:
        self._disk = disk
        self._broker = broker
        self.journal = Journal()
        self._waiting: deque[tuple[int, Session, int]] = deque()  # block, session, publish
        self.fault: OSError | None = None

    def open(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        end_turn: Callable[[], None],
        on_alarm: Callable[[bool], None],
        syncs: bool = True,
        file_bytes: int = FILE_BYTES,
    ) -> Recovered:
        """Recover what the directory holds, and keep everything durable from now on."""
        self._disk.prepare()
        self.log = Log(self._disk, self.journal, loop, syncs=syncs, file_bytes=file_bytes)
        pages = LogPages(self.log.read)
        found = recover(self._disk, self._broker, pages)
        if found.cut_bytes:
            log.warning("the log ended in %d bytes of a torn write: cut off", found.cut_bytes)
        self._end_turn = end_turn
        self._on_alarm = on_alarm
        self._is_full = False
        self.log.on_synced = self._on_synced
        self.log.on_fault = self._on_fault
        self.log.make_checkpoint = self._checkpoint
        self.journal.live = found.live
        self.journal.totals = found.totals
        # The file comes before its checkpoint: a checkpoint without its file means a lost file.
        self.log.start(found.files, found.next_file, found.last_block)
        try:
            write_checkpoint(self._disk, found.next_file, self._checkpoint())
        except OSError as fault:
            if not is_full(fault):
                raise
            log.warning("the disk is full: started without a checkpoint")
        pages.trusted_from = found.next_file
        self._broker.attach(self.journal, pages)
        self.log.remove_empty_files()
        self.survivors = Survivors(
            self._broker, self.journal, pages, self.log.covered_files, self.log.read_index
        )
        self.survivors.bytes_max = file_bytes * SPARSE_PERCENT // 100
        self.survivors.superseded = found.superseded
        self.survivors.look()
        return found

    def _checkpoint(self) -> list[bytes]:
        return checkpoint_records(self._broker, self.log.taken_block)

    def flush(self) -> None:
        """End of a turn: note who waits, and write."""
        turn = self._broker.turn
        if turn.unsynced:
            unsynced = turn.unsynced
            turn.unsynced = []
            block = self.log.taken_block + (1 if self.journal.size() != 0 else 0)
            for session in unsynced:
                if self.fault is not None:
                    session.on_unsafe(session.publish_seq)
                elif block <= self.log.synced_block:
                    session.on_synced(session.publish_seq)
                else:
                    self._waiting.append((block, session, session.publish_seq))
        self.log.kick()

    def _on_synced(self, block: int) -> None:
        if self._is_full:
            self._is_full = False
            self._on_alarm(False)
        if self.survivors.wants_look():
            self.survivors.look()
        waiting = self._waiting
        while waiting and waiting[0][0] <= block:
            _, session, seq = waiting.popleft()
            session.on_synced(seq)
        self._end_turn()  # also where nobody waits: publishers may, for the log to catch up

    def _on_fault(self, fault: OSError) -> None:
        """The log cannot be written: nobody is told that anything is safe."""
        log.error("the log cannot be written: %s", fault)
        if not is_full(fault):
            self.fault = fault
            self.survivors.stop()
        if not self._is_full:
            self._is_full = True
            self._on_alarm(True)
        for _, session, seq in self._waiting:
            session.on_unsafe(seq)
        self._waiting.clear()
        self._end_turn()

    def close(self) -> None:
        """Write what is left; blocks until it is on disk."""
        self.journal.end()
        self.log.stop()
        self._disk.release()
