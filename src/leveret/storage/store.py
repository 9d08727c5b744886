"""The store: attaches the log to a broker, and tells sessions when their data is on disk.

At the end of every turn `flush` notes which sessions wait for the block that is being filled, and
starts to write it. When the block is synced, their confirms and commits are sent.

Durability is `sync` or `os`. With `os` nothing is ever synced, and data counts as safe when it was
handed to the operating system. Then a killed process loses nothing, but a power loss loses data
that was not written yet.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.turns.turn import SessionBase
from leveret.journal.journal import Journal
from leveret.storage.backup import NodeBackup
from leveret.storage.compaction import SPARSE_PERCENT, Compactor
from leveret.storage.damage import ADVICE
from leveret.storage.disk import Disk, is_temporary
from leveret.storage.disk_space import RESERVE_BYTES, DiskAlarm, DiskReserve
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.log_reader import LogReader
from leveret.storage.recovery import RecoveryResult, recover
from leveret.storage.segment_files import SegmentFiles

log = logging.getLogger(__name__)

DISK_FULL: Final = "disk"
SYNC: Final = "sync"
OS: Final = "os"


class Store:
    """Durability of one broker: journal, log, recovery, compaction and the disk alarm."""

    def __init__(self, disk: Disk, broker: Broker, durability: str = SYNC) -> None:
        self.disk = disk
        disk.syncs = durability == SYNC
        self.durability = durability
        self._broker = broker
        self.journal = Journal()
        # Block, session, publish sequence number.
        self._waiting: deque[tuple[int, SessionBase, int]] = deque()
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
    ) -> RecoveryResult:
        """Recover the content of the directory, then log every durable change from now on."""
        if self.durability == OS:
            log.warning("durability is os: nothing is synced, and a power loss loses messages")
        self.disk.prepare()
        reserve = DiskReserve(self.disk, reserve_bytes)
        reserve.find()
        self.disk_alarm = DiskAlarm(self.disk, reserve, loop, free_min_bytes, self._on_disk_alarm)
        segments = SegmentFiles(self.disk)
        self.log = Log(self.disk, segments, self.journal, loop, reserve, file_bytes=file_bytes)
        pages = LogReader(self.log.read)
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
            log.error(
                "the log cannot be written: %s; publishes are refused, consumers can go on",
                fault,
            )
            self.disk_alarm.is_stuck = True
        pages.trusted_from = found.next_file
        self._broker.attach(self.journal, pages, segments.store)
        self.compactor = Compactor(
            self._broker, self.journal, pages, self.log.covered_files, self.log.read_index
        )
        self.compactor.bytes_max = file_bytes * SPARSE_PERCENT // 100
        self.compactor.superseded = found.superseded
        self.compactor.check()
        self.disk_alarm.check()
        return found

    def _checkpoint(self) -> list[bytes]:
        return checkpoint_records(self._broker, self.log.taken_block)

    def flush(self) -> None:
        """End a turn: note which sessions wait for the current block, and start to write it."""
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
        self.log.start_writing()

    def backup(self, number: int, facts: dict[str, object]) -> NodeBackup:
        """Return a backup as of the beginning of a log file, which the log has just begun."""
        self.log.hold_files()
        try:
            return NodeBackup(self.disk, number, self.log.files(), facts, self.log.release_files)
        except OSError:
            self.log.release_files()
            raise

    def wait_for_sync(self, session: SessionBase) -> None:
        """Tell a session when everything up to the end of this turn is on disk."""
        self.journal.must_sync = True
        self._broker.turn.unsynced.append(session)

    def _on_disk_alarm(self, is_short: bool) -> None:
        self.log.is_disk_short = is_short
        log.warning(
            "disk space is short: publishers are blocked"
            if is_short
            else "disk space is sufficient again"
        )
        self._on_alarm(is_short)

    def _on_synced(self, block: int) -> None:
        self.disk_alarm.note_written()
        if self.compactor.is_check_due():
            self.compactor.check()
        waiting = self._waiting
        while waiting and waiting[0][0] <= block:
            _, session, seq = waiting.popleft()
            session.on_synced(seq)
        # Also without waiting sessions: publishers may wait for the log to catch up.
        self._end_turn()

    def _on_fault(self, fault: OSError) -> None:
        """Tell all waiting sessions that their data is not safe."""
        log.error("the log cannot be written: %s", fault)
        if not is_temporary(fault):
            self.fault = fault
            self.compactor.stop()
        self.disk_alarm.is_stuck = True
        self.disk_alarm.check()
        for _, session, seq in self._waiting:
            session.on_unsafe(seq)
        self._waiting.clear()
        self._end_turn()

    def close(self) -> None:
        """Write the remaining blocks; blocks until they are on disk."""
        self.journal.write_end()
        self.disk_alarm.stop()
        self.log.stop()
        self.disk.release()


def _report(found: RecoveryResult) -> None:
    if found.cut_bytes:
        log.warning("the log ended in %d bytes of a torn write: cut off", found.cut_bytes)
    for loss in found.losses:
        log.error("%s", loss)
    for damage in found.damage:
        log.error("%s: %s", damage.place(), ADVICE)
