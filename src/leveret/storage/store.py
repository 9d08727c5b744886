"""The store: puts the log under a broker, and tells whoever waits when it is safe.

At the end of every turn `flush` notes which sessions wait for the block that is being filled, and
sends it on its way. When it is synced, their confirms and commits leave.

Durability is `sync`, or `os`: then nothing is ever synced, and "safe" means handed to the operating
system: a killed process loses nothing, a loss of power loses what was not written yet.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.turns.session import Session
from leveret.journal.journal import Journal
from leveret.storage.backup import NodeBackup
from leveret.storage.damage import ADVICE
from leveret.storage.disk import Disk, passes
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.pages import LogPages
from leveret.storage.recovery import Recovered, recover
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.space import RESERVE_BYTES, Reserve, Space
from leveret.storage.survivors import SPARSE_PERCENT, Survivors

log = logging.getLogger(__name__)

DISK_FULL: Final = "disk"
SYNC: Final = "sync"
OS: Final = "os"


class Store:
    """Durability of one broker."""

    def __init__(self, disk: Disk, broker: Broker, durability: str = SYNC) -> None:
        self.disk = disk
        disk.syncs = durability == SYNC
        self.durability = durability
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
        file_bytes: int = FILE_BYTES,
        free_min_bytes: int = 0,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> Recovered:
        """Recover what the directory holds, and keep everything durable from now on."""
        if self.durability == OS:
            log.warning("durability is os: nothing is synced, a loss of power loses messages")
        self.disk.prepare()
        reserve = Reserve(self.disk, reserve_bytes)
        reserve.find()
        self.space = Space(self.disk, reserve, loop, free_min_bytes, self._on_space)
        segments = SegmentFiles(self.disk)
        self.log = Log(self.disk, segments, self.journal, loop, reserve, file_bytes=file_bytes)
        pages = LogPages(self.log.read)
        found = recover(self.disk, self._broker, pages, segments)
        _report(found)
        self._end_turn = end_turn
        self._on_alarm = on_alarm
        self.log.on_synced = self._on_synced
        self.log.on_fault = self._on_fault
        self.log.make_checkpoint = self._checkpoint
        self.journal.live = found.live
        self.journal.totals = found.totals
        fault = self.log.start(found.files, found.covered, found.next_file, found.last_block)
        if fault is not None:
            log.error("nothing can be written: %s; consumers can take what is there", fault)
            self.space.is_stuck = True
        pages.trusted_from = found.next_file
        self._broker.attach(self.journal, pages, segments.store)
        self.survivors = Survivors(
            self._broker, self.journal, pages, self.log.covered_files, self.log.read_index
        )
        self.survivors.bytes_max = file_bytes * SPARSE_PERCENT // 100
        self.survivors.superseded = found.superseded
        self.survivors.look()
        self.space.check()
        return found

    def _checkpoint(self) -> list[bytes]:
        return checkpoint_records(self._broker, self.log.taken_block)

    def flush(self) -> None:
        """End of a turn: note who waits, and write."""
        turn = self._broker.turn
        if turn.unsynced:
            unsynced = turn.unsynced
            turn.unsynced = []
            block = self.log.taken_block + (1 if self.journal.waiting_bytes() != 0 else 0)
            for session in unsynced:
                if self.fault is not None:
                    session.on_unsafe(session.publish_seq)
                elif block <= self.log.synced_block:
                    session.on_synced(session.publish_seq)
                else:
                    self._waiting.append((block, session, session.publish_seq))
        self.log.kick()

    def backup(self, number: int, facts: dict[str, object]) -> NodeBackup:
        """The node as of the beginning of a log file, which the log has just begun."""
        self.log.hold()
        try:
            return NodeBackup(self.disk, number, self.log.files(), facts, self.log.let_go)
        except OSError:
            self.log.let_go()
            raise

    def wait_for_sync(self, session: Session) -> None:
        """At the end of this turn: tell a session when everything up to here is on disk."""
        self.journal.must_sync = True
        self._broker.turn.unsynced.append(session)

    def _on_space(self, is_short: bool) -> None:
        self.log.is_short = is_short
        log.warning("the disk is short of room" if is_short else "the disk has room again")
        self._on_alarm(is_short)

    def _on_synced(self, block: int) -> None:
        self.space.note_written()
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
        if not passes(fault):
            self.fault = fault
            self.survivors.stop()
        self.space.is_stuck = True
        self.space.check()
        for _, session, seq in self._waiting:
            session.on_unsafe(seq)
        self._waiting.clear()
        self._end_turn()

    def close(self) -> None:
        """Write what is left; blocks until it is on disk."""
        self.journal.write_end()
        self.space.stop()
        self.log.stop()
        self.disk.release()


def _report(found: Recovered) -> None:
    if found.cut_bytes:
        log.warning("the log ended in %d bytes of a torn write: cut off", found.cut_bytes)
    for loss in found.losses:
        log.error("%s", loss)
    for damage in found.damage:
        log.error("%s: %s", damage.place(), ADVICE)
