"""The log of a follower: writes the blocks of its leader as they are, in its own thread.

    write    check, cut, write, one sync for all blocks that have arrived, file `raft`, report
    commit   chunks into segments, trims, and at a ROLL block: index, removal of files

A block is written only if its checksum, number, term and kind are right. A ROLL block begins its
own file. The file before it is synced first, so only the last file can have a torn end. A cut is
synced before anything is written behind it. Nothing that a block allows is done before the block
is committed, because an uncommitted block can still be cut off.

While the disk is full, the log keeps its jobs and tries again (`on_full`, `on_room`). Every other
fault ends it (`on_fault`), because after a failed sync the content of the disk is unknown. A data
directory that was removed ends it too, before a block in a removed file is acknowledged.
"""

import asyncio
import errno
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.errors import CorruptionError
from leveret.histogram import Histogram
from leveret.journal.cluster_records import encode_members_record, encode_nothing, find_roll
from leveret.journal.records import (
    CHUNK,
    DEFINE,
    MEMBERS,
    MEMBERS_BLOCK,
    ROLL_BLOCK,
    TRIM,
    encode_stamp,
)
from leveret.storage.block_reader import BlockReader, FoundBlock, locate_block
from leveret.storage.block_records import (
    ROLL_EFFECT,
    Effect,
    note_effects,
    stamped_kind,
    stamped_ms,
    stamped_term,
)
from leveret.storage.block_scan import (
    SYNC_BYTES_MAX,
    BlockScan,
    LogFile,
    lower_mark,
    read_effect,
    remove_index,
    remove_newest,
    scan_blocks,
    tidy_end,
)
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, encode_block_head, is_block
from leveret.storage.checkpoint import remove_logs, settle_roll
from leveret.storage.directory_copy import finish_install
from leveret.storage.disk import Disk, DiskFile, is_temporary, removed_fault
from leveret.storage.file_names import checkpoint_name, log_name, numbers
from leveret.storage.file_records import decode_trim, listed_files
from leveret.storage.follower_segments import FollowerSegments
from leveret.storage.full_file_index import index_full_file
from leveret.storage.log_files import create_log
from leveret.storage.raft_state import RaftState, write_raft_state
from leveret.storage.synced_mark import SyncedMark
from leveret.storage.write_job import SYNC_BOUNDS_S
from leveret.storage.writer_thread import JobThread

FULL_RETRY_S: Final = 1.0

ArrivedBlock = tuple[int, int, int, bytes]  # index, term, kind, data


class _Job:
    """One task for the thread: a write, or the effects of committed blocks."""

    def __init__(self, cut_from: int, blocks: list[ArrivedBlock], state: RaftState | None) -> None:
        self.cut_from = cut_from
        self.blocks = blocks
        self.state = state
        self.done: Callable[[], None] | None = None
        self.commit = 0
        self.is_checked = False
        self.is_cut = False
        self.written = 0  # blocks that are synced
        self.last_ms = 0  # time of the last block
        self.sync_s = 0.0  # time of its longest write and sync; 0: it has none
        self.has_failed = False  # the disk was full when it was tried first
        self.made: list[Effect] = []  # effects of the written blocks
        self.due: deque[Effect] = deque()  # effects to settle


class FollowerLog:
    """The log of a running follower.

    `_do` and the methods below it run in the thread, all others on the event loop.
    """

    def __init__(
        self, disk: Disk, loop: asyncio.AbstractEventLoop, state: RaftState, scan: BlockScan
    ) -> None:
        self._disk = disk
        self._loop = loop
        self.on_full: Callable[[OSError], None] = _ignore_fault  # the disk is full
        self.on_room: Callable[[], None] = _ignore  # it is not full any more
        self.on_fault: Callable[[Exception], None] = _ignore_fault  # the log has ended
        self.on_removed: Callable[[int], None] = _ignore_index  # blocks up to this one are gone
        self.now_ms: Callable[[], int] = int  # the time of blocks that are made here
        self.last_ms = scan.last_ms  # time of the newest block
        self.needs_copy = scan.needs_copy
        self.synced_index = scan.last_index
        self.commit = 0
        self.sync_times = Histogram(SYNC_BOUNDS_S)  # seconds for writing and syncing blocks
        self._effects: deque[Effect] = deque([e for e in scan.effects if e.kind != MEMBERS])
        self._is_full = False
        self._has_failed = False
        self._is_closed = False
        self._retry_timer: asyncio.TimerHandle | None = None
        self._reader = BlockReader(disk, loop)
        # Owned by the thread.
        self._state = state.copy()
        self._files = scan.files
        self._last = scan.last_index
        self._file: DiskFile | None = None
        self._end = HEAD_BYTES  # where the next block goes
        self._sync_began_s = 0.0  # when the running write and sync began; 0: none runs
        self._mark = SyncedMark(disk)
        self._segments = FollowerSegments(disk)
        self._undone: deque[_Job] = deque()  # the first may have failed
        self._writer: JobThread[_Job] = disk.make_thread("leveret-follower", self._do)
        if not scan.needs_copy:
            trims = [e for e in scan.effects if e.kind == TRIM]
            self._segments.begin(
                scan.start_records, [decode_trim(read_effect(disk, effect)) for effect in trims]
            )
            if scan.files:
                self._file = disk.open(log_name(scan.files[-1].number))
                self._end = scan.files[-1].end
        self._mark.open()
        if not scan.needs_copy and scan.last_index:
            self._mark.note(scan.last_index)  # a copy has blocks that the mark does not know
        self._writer.start()
        self.commit_to(scan.committed)

    def write(
        self,
        state: RaftState | None,
        cut_from: int,
        blocks: list[ArrivedBlock],
        done: Callable[[], None],
    ) -> None:
        """Cut the log from a block on (0: no cut), write blocks, then `state` if it is given.

        Call `done` on the loop when all of it is synced, also if the log is closed meanwhile.
        `commit` of the state is filled in here.
        """
        assert not self.needs_copy, "a log with a hole takes no blocks"
        assert cut_from == 0 or cut_from > self.commit, "a committed block is never cut off"
        job = _Job(cut_from, blocks, state.copy() if state is not None else None)
        job.done = done
        job.commit = self.commit
        self._submit(job)

    def commit_to(self, index: int) -> None:
        """Note that all blocks up to this one are committed. Blocks not here yet follow later."""
        self.commit = max(self.commit, min(index, self.synced_index))
        if self._effects and self._effects[0].index <= self.commit:
            job = _Job(0, [], None)
            job.commit = self.commit
            while self._effects and self._effects[0].index <= self.commit:
                job.due.append(self._effects.popleft())
            self._submit(job)

    def make_block(self, index: int, term: int, kind: int, payload: bytes) -> bytes:
        """Encode a block of kind TERM (without payload) or MEMBERS, to be written here first."""
        self.last_ms = max(self.last_ms, self.now_ms())
        record = encode_members_record(payload) if kind == MEMBERS_BLOCK else encode_nothing()
        pieces = [encode_stamp(self.last_ms, term, kind), record]
        return encode_block_head(pieces, index) + b"".join(pieces)

    def read_blocks(
        self, first: int, last: int, bytes_max: int, done: Callable[[list[FoundBlock]], None]
    ) -> None:
        """Read blocks back, see `BlockReader.read_blocks`."""
        self._reader.read_blocks(first, last, bytes_max, done)

    def stream_end(self, number: int) -> int:
        """Return the end of the messages of a stream that are in its segments."""
        return self._segments.end_offset(number)

    def sync_began_s(self) -> float:
        """Return when the running sync began, by `time.perf_counter`; 0 if none runs."""
        return self._sync_began_s

    def check_directory(self) -> None:
        """End the log if the data directory is gone. A write notices it by itself."""
        if not self._has_failed and not self._disk.is_in_place():
            self._fail(removed_fault())

    def close(self) -> None:
        """Finish all jobs and close the files. Blocks until that is done."""
        self._is_closed = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._reader.close()
        self._writer.finish()
        self._mark.close()
        self._segments.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _submit(self, job: _Job) -> None:
        if not self._has_failed:
            self._writer.submit(job)

    def _on_done(self, job: _Job, last: int, base: int) -> None:
        if self._is_full and not self._is_closed:
            self._is_full = False
            self.on_room()
        if job.done is None:
            if base and not self._is_closed:
                self.on_removed(base)
            return
        while job.cut_from and self._effects and self._effects[-1].index >= job.cut_from:
            self._effects.pop()
        self._effects.extend([e for e in job.made if e.kind != MEMBERS])
        self.synced_index = last
        self.last_ms = max(self.last_ms, job.last_ms)
        if job.sync_s > 0:
            self.sync_times.observe(job.sync_s)
        job.done()

    def _on_failed(self, job: _Job, fault: Exception) -> None:
        if self._is_closed:
            return
        if isinstance(fault, OSError) and is_temporary(fault):
            if not self._is_full:
                self._is_full = True
                self.on_full(fault)
            self._retry_timer = self._loop.call_later(FULL_RETRY_S, self._retry, job)
        elif not self._has_failed:
            self._fail(fault)

    def _fail(self, fault: Exception) -> None:
        self._has_failed = True
        self.on_fault(fault)

    def _retry(self, job: _Job) -> None:
        self._retry_timer = None
        self._writer.submit(job)

    def _do(self, job: _Job) -> None:
        """Do a job, and report the result. After a failed job all later ones wait for it."""
        undone = self._undone
        if not undone or job is not undone[0]:
            undone.append(job)
        if job is not undone[0]:
            return
        while undone:
            job = undone[0]
            try:
                base = self._settle_all(job) if job.done is None else self._write(job)
            except Exception as fault:
                self._sync_began_s = 0.0
                job.has_failed = True
                self._call_on_loop(self._on_failed, job, fault)
                return
            undone.popleft()
            if job.done is not None or base or job.has_failed:  # the loop has to know
                self._call_on_loop(self._on_done, job, self._last, base)

    def _write(self, job: _Job) -> int:
        """Do the steps of a write that are not done yet. After a full disk this continues it."""
        if not job.is_checked:
            self._check(job)
            job.is_checked = True
        if job.cut_from and not job.is_cut:
            self._cut(job.cut_from)
            job.is_cut = True
        pieces: list[bytes] = []
        size = 0
        for index, _, kind, data in job.blocks[job.written :]:
            size += len(data)
            if kind == ROLL_BLOCK or self._file is None or size > SYNC_BYTES_MAX:
                self._write_pieces(job, pieces)
                pieces = []
                size = len(data)
            if kind == ROLL_BLOCK or self._file is None:
                self._begin_file(index, kind, data)
            pieces.append(data)
        self._write_pieces(job, pieces)
        if job.state is not None:
            job.state.commit = max(self._state.commit, min(job.commit, self._last))
            write_raft_state(self._disk, job.state)
            self._state = job.state
        return 0

    def _check(self, job: _Job) -> None:
        """Raise CorruptionError if a block is damaged, or not the next one."""
        following = job.cut_from or self._last + 1
        if following > self._last + 1:
            raise CorruptionError(f"a cut from block {following} on, after block {self._last}")
        for index, term, kind, data in job.blocks:
            text = block_fault(index, term, kind, data)
            if text or index != following:
                raise CorruptionError(text or f"block {index} came instead of {following}")
            following += 1

    def _write_pieces(self, job: _Job, pieces: list[bytes]) -> None:
        """Write blocks to the current file, and sync them."""
        if not pieces:
            return
        file = self._file
        assert file is not None
        began_s = time.perf_counter()
        self._sync_began_s = began_s
        file.write(pieces, self._end)
        _sync(file)
        job.sync_s = max(job.sync_s, time.perf_counter() - began_s)
        self._sync_began_s = 0.0
        if not self._disk.is_in_place():
            raise removed_fault()
        number = self._files[-1].number
        for data in pieces:
            self._last += 1
            note_effects(data, 0, self._last, number, self._end, job.made)
            self._end += len(data)
        job.last_ms = int(stamped_ms(pieces[-1], 0, len(pieces[-1])))
        self._files[-1].end = self._end
        job.written += len(pieces)
        self._mark.note(self._last)

    def _begin_file(self, index: int, kind: int, data: bytes) -> None:
        """Create the file that begins with this block."""
        number = 1
        if kind == ROLL_BLOCK:
            number = int(find_roll(data, BLOCK_HEAD_BYTES, len(data)).file)
        elif index != 1:
            raise CorruptionError(f"block {index} came, and there is no file for it")
        if self._files and self._files[-1].number == number and self._files[-1].first == index:
            return  # it was created before the disk was full
        if self._files and number <= self._files[-1].number:
            raise CorruptionError(
                f"block {index} begins file {number}, after file {self._files[-1].number}"
            )
        made = create_log(self._disk, number)
        if self._file is not None:
            self._file.close()
        self._file = made
        self._files.append(LogFile(number, index))
        self._end = HEAD_BYTES
        self._mark.open()

    def _cut(self, first: int) -> None:
        """Remove all blocks from this one on, and sync that."""
        if first > self._last:
            return
        self._mark.close()
        lower_mark(self._disk, first - 1)
        self._mark.open()
        if self._file is not None:
            self._file.close()
            self._file = None
        names = self._disk.names()
        gone: list[int] = []
        while self._files and self._files[-1].first >= first:
            if checkpoint_name(self._files[-1].number) in names:
                break  # the file begins with a checkpoint: only its blocks go
            gone.insert(0, self._files.pop().number)
        remove_newest(self._disk, gone)
        if self._files:
            self._cut_file(self._files[-1], first)
        self._last = first - 1

    def _cut_file(self, last: LogFile, first: int) -> None:
        """Cut the last file before a block, and go on writing there."""
        remove_index(self._disk, last.number)
        file = self._disk.open(log_name(last.number))
        try:
            size = last.end or file.size()
            end = HEAD_BYTES if first == last.first else locate_block(file, first) or size
            file.truncate(end)
            _sync(file)
        except OSError:
            file.close()
            raise
        self._file = file
        self._end = end
        last.end = end

    def _settle_all(self, job: _Job) -> int:
        """Do the effects of committed blocks; return the new base of the log, 0 if it stays."""
        base = 0
        while job.due:
            base = self._settle(job.due[0]) or base
            job.due.popleft()
        return base

    def _settle(self, effect: Effect) -> int:
        if self._file is not None and effect.file == self._files[-1].number:
            data = self._file.read(int(effect.size), int(effect.at))
        else:
            data = read_effect(self._disk, effect)
        if effect.kind == CHUNK:
            self._segments.append(int.from_bytes(data[:8], "big"), data[8:])
        elif effect.kind == TRIM:
            self._segments.trim(*decode_trim(data))
        elif effect.kind == DEFINE:
            self._segments.define(data)
        elif effect.kind == ROLL_EFFECT:
            return self._settle_roll(effect, data)
        return 0

    def _settle_roll(self, effect: Effect, records: bytes) -> int:
        """Free the files that a committed ROLL block replaces; return the base of the log."""
        index, number = int(effect.index), int(effect.file)
        self._segments.align(records)
        self._segments.sync()
        if self._state.commit < index:
            self._state.commit = index
            write_raft_state(self._disk, self._state)
        kept = listed_files(records)
        # Most files are empty soon after they are full, so an index is made one file later.
        older = [file for file in self._files if file.number == number - 2]
        if older and older[0].number in kept:
            index_full_file(self._disk, older[0].number, older[0].first)
        settle_roll(self._disk, number, kept)
        self._segments.remove_deleted()
        logs = numbers(self._disk.names(), ".log")
        remove_logs(self._disk, [n for n in logs if n < number and n not in kept], index)
        gone = [f.number for f in self._files if f.number < number and f.number not in kept]
        self._files = [file for file in self._files if file.number > max(gone, default=0)]
        return self._files[0].first - 1

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the node has stopped
            return


def open_follower(
    disk: Disk, loop: asyncio.AbstractEventLoop, state: RaftState
) -> tuple[FollowerLog, BlockScan]:
    """Open a directory as a follower, after the installation of a copy if one has begun.

    A loss is noted in `state` and in the file `raft` first.
    """
    try:
        finish_install(disk, state)
        scan = scan_blocks(disk, state.commit)
    except CorruptionError as fault:
        scan = BlockScan()
        scan.needs_copy = True
        scan.lost = str(fault)
    if scan.lost:
        state.note_loss()
        state.commit = min(state.commit, scan.last_index)
        write_raft_state(disk, state)
    for name in disk.names():
        if name.endswith(".new"):
            disk.remove(name)
    tidy_end(disk, scan)
    return FollowerLog(disk, loop, state, scan), scan


def block_fault(index: int, term: int, kind: int, data: bytes) -> str:
    """Return why a received block must not be written; empty if it is sound."""
    if not is_block(data, index):
        return f"block {index} is damaged, or another block"
    if stamped_term(data, 0, len(data)) != term or stamped_kind(data, 0, len(data)) != kind:
        return f"block {index} has another term or kind than its message says"
    return ""


def _sync(file: DiskFile) -> None:
    """Sync a file. Turn every fault into EIO: a failed sync is never tried again."""
    try:
        file.sync()
    except OSError as fault:
        raise OSError(errno.EIO, f"{file.name} was not synced: {fault.strerror}") from fault


def _ignore() -> None:
    """Do nothing: the default of a callback."""


def _ignore_index(index: int) -> None:
    """Do nothing: the default of a callback."""


def _ignore_fault(fault: Exception) -> None:
    """Do nothing: the default of a callback."""
