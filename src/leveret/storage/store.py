"""The store: attaches the log to a broker, and tells sessions when their data is on disk.

At the end of every turn `flush` notes which sessions wait for the block that is being filled, and
starts to write it. When the block is synced, their confirms and commits are sent.

If the node leads a cluster, the log is replicated, and "on disk" becomes "committed": on the disks
of a majority. All output to clients waits for the newest block, because the output may show its
content (`block_to_await`).

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
from leveret.engine.turns.session import note_send_fault
from leveret.engine.turns.turn import SessionBase
from leveret.errors import CorruptionError, StorageError, public_reason
from leveret.journal.journal import Journal
from leveret.storage.backup import NodeBackup, open_members, open_replicated_members
from leveret.storage.compaction import SPARSE_PERCENT, Compactor
from leveret.storage.damage import ADVICE
from leveret.storage.disk import Disk, is_temporary, removed_fault
from leveret.storage.disk_space import RESERVE_BYTES, DiskAlarm, DiskReserve
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.log_reader import LogReader
from leveret.storage.raft_state import require_no_member
from leveret.storage.recovery import Recovery, recover
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.replicated_log import ReplicatedLog
from leveret.storage.replication import Replication
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
        self.replicated: ReplicatedLog | None = None  # the log, if this node leads a cluster
        # Number of a block, and a session that holds its output back until the block is committed.
        self._holding: deque[tuple[int, SessionBase]] = deque()
        # Called with the number of a committed block, after the sessions that waited for the block.
        self.on_answered: Callable[[int], None] | None = None
        self.fault: OSError | None = None  # a fault that has ended all writing
        self.on_unwritable: Callable[[OSError], None] | None = None  # called with that fault
        self._last_fault: OSError | None = None  # the last fault, which may have passed

    def open(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        end_turn: Callable[[], None],
        on_alarm: Callable[[bool], None],
        file_bytes: int = FILE_BYTES,
        free_min_bytes: int = 0,
        reserve_bytes: int = RESERVE_BYTES,
        replication: Replication | None = None,
    ) -> RecoveryResult:
        """Recover the content of the directory, then log every durable change from now on."""
        recovery = self.prepare(
            loop,
            file_bytes=file_bytes,
            free_min_bytes=free_min_bytes,
            reserve_bytes=reserve_bytes,
            replication=replication,
        )
        try:
            recovery.run()
        except Exception:
            self.drop()  # a repair in the same process must be able to lock the directory
            raise
        self.begin(recovery.found, end_turn=end_turn, on_alarm=on_alarm)
        return recovery.found

    def prepare(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        file_bytes: int = FILE_BYTES,
        free_min_bytes: int = 0,
        reserve_bytes: int = RESERVE_BYTES,
        replication: Replication | None = None,
    ) -> Recovery:
        """Lock the directory, and return its recovery. After its last step, call `begin`.

        With a `replication` this node leads a cluster. Its log then begins with a new ROLL block;
        clients may be served when that block is committed (`wait_for_commit`).
        """
        if self.durability == OS:
            log.warning("durability is os: nothing is synced, and a power loss loses messages")
        self.disk.prepare()
        if replication is None:
            try:
                require_no_member(self.disk)
            except StorageError:
                self.disk.release()
                raise
        reserve = DiskReserve(self.disk, reserve_bytes)
        reserve.find()
        self.disk_alarm = DiskAlarm(self.disk, reserve, loop, free_min_bytes, self._on_disk_alarm)
        self._segments = SegmentFiles(self.disk)
        self._make_log(self._segments, loop, reserve, file_bytes, replication)
        self._pages = LogReader(self.log.read)
        self._file_bytes = file_bytes
        return recover(
            self.disk,
            self._broker,
            self._pages,
            self._segments,
            accepts_lost_end=self.durability == OS,
            is_replicated=replication is not None,
        )

    def drop(self) -> None:
        """End after `prepare`: the recovery has failed, or is not wanted any more."""
        self._segments.close()
        self.disk.release()

    def begin(
        self,
        found: RecoveryResult,
        *,
        end_turn: Callable[[], None],
        on_alarm: Callable[[bool], None],
    ) -> None:
        """Log every durable change from now on. The recovery has done its last step."""
        _report(found)
        self._end_turn = end_turn
        self._on_alarm = on_alarm
        self.log.on_committed = self._on_committed
        self.log.on_fault = self._on_fault
        self.disk_alarm.on_missing = self._on_missing
        self.log.make_checkpoint = self._checkpoint
        self.log.now_ms = self._now_ms
        self.log.last_ms = int(found.replay.last_ms)
        if self.replicated is None:
            self.log.term = int(found.replay.last_term)
        self.journal.live = found.live
        self.journal.totals = found.totals
        if self.replicated is not None:
            self.replicated.newest_index = found.newest_index
        fault = self.log.start(found.files, found.covered, found.next_file, found.last_block)
        if fault is not None:
            _log_unwritable(fault)
            self._last_fault = fault
            self.disk_alarm.is_stuck = True
        self._pages.trusted_from = found.next_file
        self._broker.attach(self.journal, self._pages, self._segments.store)
        self.compactor = Compactor(
            self._broker, self.journal, self._pages, self.log.covered_files, self.log.read_index
        )
        self.compactor.bytes_max = self._file_bytes * SPARSE_PERCENT // 100
        self.compactor.superseded = found.superseded
        self.compactor.check()
        self.disk_alarm.check()

    def _make_log(
        self,
        segments: SegmentFiles,
        loop: asyncio.AbstractEventLoop,
        reserve: DiskReserve,
        file_bytes: int,
        replication: Replication | None,
    ) -> None:
        disk = self.disk
        if replication is None:
            self.log = Log(disk, segments, self.journal, loop, reserve, file_bytes=file_bytes)
        else:
            self.replicated = ReplicatedLog(
                disk, segments, self.journal, loop, reserve, replication, file_bytes=file_bytes
            )
            self.log = self.replicated

    def _now_ms(self) -> int:
        return int(self._broker.turn.now_ms)

    def _checkpoint(self) -> list[bytes]:
        return checkpoint_records(self._broker, self.log.taken_block)

    def flush(self) -> None:
        """End a turn: note which sessions wait for the current block, and start to write it."""
        turn = self._broker.turn
        if turn.unsynced:
            unsynced = turn.unsynced
            turn.unsynced = []
            block = self.log.taken_block + (1 if self.journal.waiting_bytes() != 0 else 0)
            if self.fault is not None:
                # No later change becomes safe: callers must not wait for it.
                self.journal.synced_definitions = self.journal.definitions
            for session in unsynced:
                if self.fault is not None:
                    self._tell_unsafe(session, session.publish_seq)
                elif block <= self.log.committed_block:
                    self._tell_synced(session, session.publish_seq)
                else:
                    self._waiting.append((block, session, session.publish_seq))
                    if self.replicated is not None and block > self.log.taken_block:
                        self.replicated.answers.note_waiting(session)
        self.log.start_writing()

    def backup(self, number: int, facts: dict[str, object]) -> NodeBackup:
        """Return a backup as of the beginning of a log file, which the log has just begun."""
        self.log.hold_files()
        try:
            if self.replicated is None:
                members = open_members(self.disk, number, self.log.files())
            else:
                members = open_replicated_members(self.disk, number)
            return NodeBackup(number, members, facts, self.log.release_files)
        except (OSError, CorruptionError):
            self.log.release_files()
            raise

    def why_unsafe(self) -> str:
        """Return why the last changes are not on disk."""
        fault = self._last_fault
        reason = public_reason(fault) if fault is not None else "unknown fault"
        return f"the log cannot be written: {reason}"

    def wait_for_sync(self, session: SessionBase) -> None:
        """Tell a session when everything up to the end of this turn is on disk."""
        self.journal.must_sync = True
        self._broker.turn.unsynced.append(session)

    def block_to_await(self) -> int:
        """Return the block whose commit the output must wait for; 0 if it may be sent now."""
        if self.replicated is None:
            return 0
        block = self.replicated.newest_told_block()
        return block if block > self.log.committed_block else 0

    def wait_for_commit(self, block: int, session: SessionBase) -> None:
        """Tell a session when a block is committed. `block_to_await` has returned its number."""
        if block > self.log.taken_block:
            if self.journal.waiting_bytes() == 0:
                self.journal.write_nothing()
            self.journal.must_sync = True  # do not wait for more records
        self._holding.append((block, session))

    @property
    def last_ms(self) -> int:
        """The time of the newest block. The clock of a leader must not show less."""
        return self.log.last_ms

    def _on_disk_alarm(self, is_short: bool) -> None:
        self.log.is_disk_short = is_short
        self._on_alarm(is_short)

    def _on_committed(self, block: int) -> None:
        if self.fault is None:
            self.disk_alarm.note_written()
        if self.compactor.is_check_due():
            self.compactor.check()
        waiting = self._waiting
        while waiting and waiting[0][0] <= block:
            _, session, seq = waiting.popleft()
            confirmed = seq - session.confirmed_seq
            self._tell_synced(session, seq)
            if self.replicated is not None:
                self.replicated.answers.note_confirmed(session, confirmed)
        if self.replicated is not None:
            self.replicated.answers.begin()
            self._release_output(block)
        # Also without waiting sessions: publishers may wait for the log to catch up.
        self._end_turn()

    def _release_output(self, block: int) -> None:
        """Let sessions send the output that waited for a block."""
        if self.on_answered is not None:
            self.on_answered(block)
        holding = self._holding
        while holding and holding[0][0] <= block:
            _, session = holding.popleft()
            self._tell_synced(session, 0)

    def _tell_synced(self, session: SessionBase, seq: int) -> None:
        """Tell one session. Its fault must not reach the other sessions, or stop the log."""
        try:
            session.on_synced(seq)
        except Exception as fault:
            note_send_fault(self._broker.turn, session, "confirms", fault)

    def _tell_unsafe(self, session: SessionBase, seq: int) -> None:
        """Tell one session, likewise."""
        try:
            session.on_unsafe(seq)
        except Exception as fault:
            note_send_fault(self._broker.turn, session, "nacks", fault)

    def _on_missing(self) -> None:
        """End all writing: a block in a removed file would be confirmed, and then lost."""
        self.log.fail(removed_fault())

    def _on_fault(self, fault: OSError) -> None:
        """Tell all waiting sessions that their data is not safe."""
        _log_unwritable(fault)
        self._last_fault = fault
        if not is_temporary(fault):
            self.fault = fault
            self.journal.synced_definitions = self.journal.definitions
            self.compactor.stop()
            if self.on_unwritable is not None:
                self.on_unwritable(fault)
        self.disk_alarm.is_stuck = True
        self.disk_alarm.check()
        for _, session, seq in self._waiting:
            self._tell_unsafe(session, seq)
        self._waiting.clear()
        if self.fault is not None:
            for _, session in self._holding:
                self._tell_unsafe(session, 0)
            self._holding.clear()
        self._end_turn()

    def close(self) -> None:
        """Write the remaining blocks; blocks until they are on disk.

        In a cluster this is `abandon`: clients know nothing of blocks that are not committed.
        """
        if self.replicated is not None:
            self.abandon()
            return
        self.journal.write_end()
        self.disk_alarm.stop()
        self.log.stop()
        self.disk.release()

    def abandon(self) -> None:
        """End because another node leads. Write only the blocks that were sent to other nodes."""
        self.compactor.stop()
        self.disk_alarm.stop()
        self.log.stop()
        self.disk.release()


def _log_unwritable(fault: OSError) -> None:
    is_retried = is_temporary(fault)
    advice = "it is tried again" if is_retried else "check the disk, then restart the node"
    text = "the log cannot be written: %s; publishes are refused, consumers can go on; %s"
    log.error(text, fault, advice)


def _report(found: RecoveryResult) -> None:
    if found.cut_bytes:
        log.warning(
            "the last write to the log was not complete: its %d bytes were removed; nothing in them"
            " was confirmed, so nothing has to be done",
            found.cut_bytes,
        )
    if found.is_mark_damaged:
        log.warning(
            "the file 'synced' is damaged, so this start cannot notice a missing end of the log; if"
            " the disk or the file system has failed, look for missing messages"
        )
    for loss in found.losses:
        log.error("%s", loss)
    for damage in found.damage:
        log.error("%s: %s", damage.place(), ADVICE)
