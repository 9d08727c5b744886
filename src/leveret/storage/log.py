"""The write-ahead log: writes and syncs the journal's blocks in its own thread.

One block is being written at a time; meanwhile the engine fills the next one (group commit). A
block that a client waits for (`Journal.must_sync`) is written at once. A block of acks only waits
up to `ACKS_WAIT_S`, unless it is long. When the thread is done, it calls `on_synced` on the event
loop with the number of the block: everything up to this block is on disk.

A log file is full at `file_bytes`. The next block starts a new file with a checkpoint, so that
older files are needed only for their messages. A file that is older than the last checkpoint and
has no live message is removed. The `Compactor` copies the last messages out of nearly empty files.

Chunks of streams are appended to their segments when their block is synced. The segments are synced
before the next checkpoint.

When the disk is full, the log uses up the reserve. If there is no reserve, it keeps the block and
tries again. While disk space is short (`is_disk_short`), the log begins a new file early if the
current one can then be removed. Every other fault ends all writing (`on_fault`), because after a
failed sync the content of the disk is unknown.
"""

import asyncio
import errno
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from leveret.errors import CorruptionError
from leveret.histogram import Histogram
from leveret.journal.chunks import WrittenChunk
from leveret.journal.journal import Journal
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, encode_block_head, encode_head
from leveret.storage.checkpoint import read_whole, remove_logs, write_checkpoint, write_index
from leveret.storage.disk import Disk, DiskFile, is_full, is_temporary
from leveret.storage.disk_space import DiskReserve
from leveret.storage.file_names import index_name, log_name
from leveret.storage.segment_files import SegmentFiles

FILE_BYTES: Final = 64 * 1024 * 1024
ACKS_WAIT_S: Final = 0.1
WAIT_BYTES_MAX: Final = 1024 * 1024  # a block of this size is written without waiting
FULL_RETRY_S: Final = 1.0
# A file must have this share of `file_bytes` to be left early when disk space is short.
_LEAVE_EARLY_SHARE: Final = 1 / 16
SYNC_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    2,
)


class WriteJob:
    """One task for the log's thread: write a block, and begin a new file if this one is full.

    A job without a block begins the first file of a node, or only removes files.
    """

    def __init__(self, pieces: list[bytes], number: int, offset: int) -> None:
        self.pieces = pieces
        self.number = number
        self.offset = offset
        self.released: list[int] = []  # positions to release when the block is on disk
        self.removable: list[int] = []  # files to remove when the block is on disk
        self.chunks: list[WrittenChunk] = []  # stream chunks to append to their segments
        self.dropped: list[tuple[int, int]] = []  # segments to remove when the block is on disk
        # Files to remove before the block is written: a full disk needs their space.
        self.removable_now: list[int] = []
        self.is_written = not pieces
        self.is_next_begun = False  # the new file and its checkpoint are written
        self.sync_s = 0.0  # time for writing and syncing the block
        self.next_file = 0  # number of the file to begin after this block; 0 = none
        self.index = b""  # index of the full file
        self.checkpoint: list[bytes] = []  # records of the checkpoint for the new file
        # Callers of `Log.roll` that wait for the new file.
        self.on_rolled: list[Callable[[int], None]] = []
        self.files: dict[int, int] = {}  # sizes of the older files, for the checkpoint


class Log:
    """The log of a running node.

    `_run` and the methods below it run in the log's thread, all others on the event loop.
    """

    def __init__(
        self,
        disk: Disk,
        segments: SegmentFiles,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        reserve: DiskReserve,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._reserve = reserve
        self._journal = journal
        self._loop = loop
        self._file_bytes = file_bytes
        self.on_synced: Callable[[int], None] = _ignore
        self.on_fault: Callable[[OSError], None] = _ignore_fault
        self.make_checkpoint: Callable[[], list[bytes]] = list
        self.taken_block = 0  # number of the last block taken from the journal
        self.synced_block = 0  # number of the last block that is on disk
        self.syncs_done = 0
        self.sync_times = Histogram(SYNC_BOUNDS_S)  # seconds for writing and syncing a block
        self.written_bytes = 0  # bytes of blocks written since the start
        self.is_disk_short = False  # disk space is short: the disk alarm is on
        self._files: set[int] = set()  # log files that exist
        self._sizes: dict[int, int] = {}  # sizes of the full files
        self._number = 0  # number of the file being written
        self._covered = 0  # files before this one are covered by a checkpoint
        self._offset = 0  # where the next block goes in the file
        self._file: DiskFile | None = None
        self._job: WriteJob | None = None
        self._job_file = 0  # number of the file that the current job writes to
        self._readers: dict[int, DiskFile] = {}  # files opened for reading messages back
        self._has_failed = False
        self._holds = 0  # number of `hold_files` calls without `release_files`
        self._is_stopped = False
        # Callers of `roll` that wait for the next block.
        self._rolls: list[Callable[[int], None]] = []
        self._acks_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._queue: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run, name="leveret-log", daemon=True)

    def start(
        self, files: dict[int, int], covered: int, number: int, last_block: int
    ) -> OSError | None:
        """Begin a new file with this number. `files` are the existing files with their sizes.

        Return the fault if the disk is full: then the log tries again later.
        """
        self._files = set(files)
        self._sizes = files
        self._covered = covered
        self.taken_block = last_block
        self.synced_block = last_block
        job = WriteJob([], last_block, 0)
        job.removable = [n for n in sorted(files) if self._journal.live.get(n, 0) == 0]
        self._job_file = number
        self._begin_file(job, number)
        fault: OSError | None = None
        try:
            self._write(job)
        except OSError as full:
            if not is_full(full):
                raise
            fault = full
            self._job = job
            self._retry_later(job)
        else:
            self._note_done(job)
        self._writer.start()
        return fault

    def _begin_file(self, job: WriteJob, number: int) -> None:
        """Let blocks after this job go to a new file, which starts with a checkpoint."""
        job.next_file = number
        kept = self._files.difference(job.removable)
        job.files = {file: self._sizes.get(file, 0) for file in kept}
        job.checkpoint = self.make_checkpoint()
        self._number = number
        self._files.add(number)
        self._place(number, HEAD_BYTES)

    def _create(self, number: int) -> DiskFile:
        file = self._disk.create(log_name(number))
        try:
            file.write([encode_head(number)], 0)
            file.sync()
            self._disk.sync_folder()
        except OSError:
            file.close()
            raise
        return file

    def _place(self, number: int, offset: int) -> None:
        self._offset = offset
        self._journal.begin_block(number, offset + BLOCK_HEAD_BYTES)

    def start_writing(self) -> None:
        """Start writing the next block, if there is one and the thread is idle."""
        if self._job is not None or self._has_failed:
            return
        if self._journal.waiting_bytes() == 0:
            if self._journal.has_emptied:
                self._remove_empty_files()
            return
        if not self._journal.must_sync and self._journal.waiting_bytes() < WAIT_BYTES_MAX:
            if self._acks_timer is None:
                self._acks_timer = self._loop.call_later(ACKS_WAIT_S, self._on_acks_waited)
            return
        self._write_block()

    def _on_acks_waited(self) -> None:
        self._acks_timer = None
        if self._job is None and not self._has_failed and self._journal.waiting_bytes() != 0:
            self._write_block()

    def roll(self, done: Callable[[int], None]) -> None:
        """Begin a new file with the next block, whatever the size of the current one.

        `done` is called with the number of the new file when its checkpoint is on disk, or with 0
        if the log has failed. No file that the checkpoint needs is removed before `done` returns.
        """
        if self._has_failed:
            done(0)
            return
        self._rolls.append(done)
        self._journal.write_nothing()
        self.start_writing()

    def files(self) -> list[int]:
        """Return the numbers of the existing log files."""
        return sorted(self._files)

    def disk_bytes(self) -> int:
        """Return the size of all log files. The current file counts up to its last block."""
        return sum(self._sizes.get(number, 0) for number in self._files) + self._offset

    def _write_block(self) -> None:
        pieces = self._journal.take_block()
        self.taken_block += 1
        job = WriteJob(pieces, self.taken_block, self._offset)
        job.released = self._journal.take_released()
        job.chunks = self._journal.take_written()
        job.dropped = self._journal.take_dropped()
        job.removable = self._empty_files()
        self._job_file = self._number
        end = self._offset + BLOCK_HEAD_BYTES + sum(map(len, pieces))
        self.written_bytes += end - self._offset
        is_left_early = self._is_worth_leaving(end)
        if end >= self._file_bytes or is_left_early or self._rolls:
            job.on_rolled = self._rolls
            self._rolls = []
            index = self._journal.take_index()
            # A file that is left early is removed at once and needs no index.
            job.index = b"" if is_left_early else index
            self._sizes[self._number] = end
            self._begin_file(job, self._number + 1)
            # The full file may have lost its last live message earlier.
            self._journal.has_emptied = True
        else:
            self._place(self._number, end)
        self._hand_over(job)

    def _is_worth_leaving(self, end: int) -> bool:
        """Return True if disk space is short and the current file has no live message."""
        is_empty = self._journal.live.get(self._number, 0) == 0
        return self.is_disk_short and is_empty and end >= self._file_bytes * _LEAVE_EARLY_SHARE

    def _remove_empty_files(self) -> None:
        """Remove files that were emptied by blocks which are all on disk by now."""
        files = self._empty_files()
        if files:
            job = WriteJob([], self.taken_block, self._offset)
            job.removable = files
            self._job_file = self._number
            self._hand_over(job)

    def is_writing(self) -> bool:
        """Return True if the thread has a job, or its result is not processed yet."""
        return self._job is not None and self._retry_timer is None and not self._has_failed

    def _hand_over(self, job: WriteJob) -> None:
        self._job = job
        self._queue.put(job)

    def _on_done(self, job: WriteJob) -> None:
        if self._is_stopped:
            return
        self._job = None
        self.syncs_done += 1
        if job.pieces:
            self.sync_times.observe(job.sync_s)
        self._journal.release_now(job.released)
        self._note_done(job)
        self._segments.forget(job.dropped)
        for chunk in job.chunks:
            chunk.owner.on_written(chunk)
        for done in job.on_rolled:
            done(job.next_file)
        self.synced_block = job.number
        self.on_synced(job.number)
        self.start_writing()

    def _note_done(self, job: WriteJob) -> None:
        if job.next_file:
            self._covered = job.next_file
        for number in {*job.removable_now, *job.removable}:
            self._files.discard(number)
            self._sizes.pop(number, None)
            self._journal.live.pop(number, None)
            self._journal.totals.pop(number, None)
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.close()

    def _on_failed(self, job: WriteJob, fault: OSError) -> None:
        if self._is_stopped:
            return
        if is_temporary(fault):
            self._retry_later(job)
        else:
            self._has_failed = True
            for done in [*job.on_rolled, *self._rolls]:
                done(0)
        self.on_fault(fault)

    def _retry_later(self, job: WriteJob) -> None:
        self._retry_timer = self._loop.call_later(FULL_RETRY_S, self._retry, job)

    def _retry(self, job: WriteJob) -> None:
        """Try again. Files that were emptied meanwhile are removed first."""
        self._retry_timer = None
        self._journal.has_emptied = True
        job.removable_now = self._empty_files()
        self._queue.put(job)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a log file: from disk, the block being written, or the journal."""
        journal = self._journal
        running_job = self._job
        if number == journal.file and offset >= journal.start:
            return journal.peek()[offset - journal.start :][:size]
        if running_job is not None and number == self._job_file:
            start = running_job.offset + BLOCK_HEAD_BYTES
            if offset >= start:
                return b"".join(running_job.pieces)[offset - start :][:size]
        file = self._readers.get(number)
        if file is None:
            try:
                file = self._disk.open(log_name(number))
            except FileNotFoundError as fault:
                raise CorruptionError(f"{log_name(number)} is missing") from fault
            self._readers[number] = file
        try:
            return file.read(size, offset)
        except OSError as fault:
            if fault.errno != errno.EIO:
                raise
            raise CorruptionError(f"{log_name(number)} cannot be read: {fault.strerror}") from fault

    def _empty_files(self) -> list[int]:
        """Return files without a live message that are older than the last checkpoint."""
        if not self._journal.has_emptied or self._holds != 0:
            return []
        self._journal.has_emptied = False
        live = self._journal.live
        return [n for n in self.covered_files() if live.get(n, 0) == 0]

    def hold_files(self) -> None:
        """Remove no file until `release_files`, because a reader needs the current files."""
        self._holds += 1

    def release_files(self) -> None:
        """Undo one `hold_files`."""
        self._holds -= 1
        self.start_writing()

    def covered_files(self) -> list[int]:
        """Return files older than the last checkpoint: they are kept only for their messages."""
        return [n for n in sorted(self._files) if n < self._covered]

    def read_index(self, number: int) -> bytes | None:
        """Return the index of a full file; None if it cannot be read."""
        try:
            return read_whole(self._disk, index_name(number), number)
        except (OSError, CorruptionError):
            return None

    def stop(self) -> None:
        """Write the remaining blocks and end the thread. Blocks until that is done."""
        self._is_stopped = True
        for timer in (self._acks_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if not self._has_failed:
            if self._job is not None:
                # Retry if the disk was full; otherwise it is written already.
                self._queue.put(self._job)
            if self._journal.waiting_bytes() != 0:
                last = WriteJob(self._journal.take_block(), self.taken_block + 1, self._offset)
                last.chunks = self._journal.take_written()
                self._queue.put(last)
        self._queue.put(None)
        self._writer.join()
        if self._file is not None:
            self._file.close()
        for file in self._readers.values():
            file.close()
        self._segments.close()

    def _run(self) -> None:
        failed: WriteJob | None = None
        while True:
            job = self._queue.get()
            if job is None:
                return
            if failed is not None and job is not failed:
                continue  # a block after an unwritten one must not be written either
            try:
                self._write(job)
            except OSError as fault:
                failed = job
                self._call_on_loop(self._on_failed, job, fault)
            except Exception as fault:  # our own errors end the writing, like errors of the disk
                failed = job
                self._call_on_loop(self._on_failed, job, OSError(errno.EIO, str(fault)))
            else:
                failed = None
                self._call_on_loop(self._on_done, job)

    def _write(self, job: WriteJob) -> None:
        """Do a job; if the disk is full, give up the reserve and try once more."""
        try:
            self._resume(job)
        except OSError as fault:
            if not is_full(fault) or not self._reserve.give_up():
                raise
            self._resume(job)

    def _resume(self, job: WriteJob) -> None:
        """Do the steps of a job that are not done yet. After a full disk this continues the job."""
        remove_logs(self._disk, job.removable_now, job.number - (not job.is_written))
        if not job.is_written:
            file = self._file
            assert file is not None
            began_s = time.perf_counter()
            file.write([encode_block_head(job.pieces, job.number), *job.pieces], job.offset)
            file.sync()
            job.sync_s = time.perf_counter() - began_s
            job.is_written = True
        self._segments.append(job.chunks)
        self._segments.remove(job.dropped)
        if job.next_file and not job.is_next_begun:
            self._begin_next_file(job)
            job.is_next_begun = True
        remove_logs(self._disk, job.removable, job.number)

    def _begin_next_file(self, job: WriteJob) -> None:
        """Begin the next file. The file is created before the checkpoint that lists it."""
        self._segments.sync()
        write_index(self._disk, job.next_file - 1, job.index)
        following = self._create(job.next_file)
        try:
            write_checkpoint(self._disk, job.next_file, job.files, job.checkpoint)
        except OSError:
            following.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file = following

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the node has stopped
            return


def _ignore(number: int) -> None:
    """Do nothing: the default for `on_synced`."""


def _ignore_fault(fault: OSError) -> None:
    """Do nothing: the default for `on_fault`."""
