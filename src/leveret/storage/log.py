"""The write-ahead log: writes and syncs the journal's blocks in its own thread.

One block is being written at a time; meanwhile the engine fills the next one (group commit). A
block of acks only waits up to `ACKS_WAIT_S`, unless it is long. `on_committed` is called on the
event loop with the number of a block when everything up to this block is safe. On a single node
that is when it is synced. `replicated_log` has the log of a node that leads a cluster.

A block that a client waits for (`Journal.must_sync`) is written as soon as a pass of the event loop
adds nothing to it, and after `GATHER_S` at the latest. Clients send in bursts, and a block costs
the same for one message as for a hundred.

A log file is full at `file_bytes`. The next block starts a new file with a checkpoint, so that
older files are needed only for their messages. A file that is older than the last checkpoint and
has no live message is removed. The `Compactor` copies the last messages out of nearly empty files.

The number of each synced block goes to the mark `synced`, so that a start notices a log whose end
is missing.

Chunks of streams are appended to their segments when their block is committed. The segments are
synced before the next checkpoint.

When the disk is full, the log uses up the reserve. If there is no reserve, it keeps the block and
tries again. While disk space is short (`is_disk_short`), the log begins a new file early if the
current one can then be removed. Every other fault ends all writing (`on_fault`), because after a
failed sync the content of the disk is unknown.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from leveret.errors import CorruptionError
from leveret.histogram import Histogram
from leveret.journal.journal import Journal
from leveret.journal.records import NORMAL_BLOCK, STAMP_BYTES, encode_stamp
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.checkpoint import read_whole
from leveret.storage.disk import Disk, is_full, is_temporary
from leveret.storage.disk_space import DiskReserve
from leveret.storage.file_names import index_name
from leveret.storage.job_writer import JobWriter
from leveret.storage.log_files import LogFiles
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.write_job import SYNC_BOUNDS_S, WriteJob
from leveret.storage.writer_thread import JobThread

FILE_BYTES: Final = 64 * 1024 * 1024
ACKS_WAIT_S: Final = 0.1
GATHER_S: Final = 0.002
WAIT_BYTES_MAX: Final = 1024 * 1024  # a block of this size is written without waiting
FULL_RETRY_S: Final = 1.0
# A file must have this share of `file_bytes` to be left early when disk space is short.
_LEAVE_EARLY_SHARE: Final = 1 / 16


class Log:
    """The log of a running node. Its methods run on the event loop, its jobs in a thread."""

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
        self._journal = journal
        self._loop = loop
        self._file_bytes = file_bytes
        self.on_committed: Callable[[int], None] = _ignore
        self.on_fault: Callable[[OSError], None] = _ignore_fault
        self.make_checkpoint: Callable[[], list[bytes]] = list
        self.now_ms: Callable[[], int] = int  # time of the current turn
        self.term = 0  # term of the leader; 0 on a single node
        self.last_ms = 0  # time of the last block
        self.taken_block = 0  # number of the last block taken from the journal
        self.committed_block = 0  # number of the last block that is safe
        self.syncs_done = 0
        self.sync_times = Histogram(SYNC_BOUNDS_S)  # seconds for writing and syncing a block
        self.written_bytes = 0  # bytes of blocks written since the start
        self.is_disk_short = False  # disk space is short: the disk alarm is on
        self._files: set[int] = set()  # log files that exist
        self._sizes: dict[int, int] = {}  # sizes of the full files
        self._number = 0  # number of the file being written
        self._covered = 0  # files before this one are covered by a checkpoint
        self._offset = 0  # where the next block goes in the file
        self._job: WriteJob | None = None  # the last job, while its first half is being done
        self._submitted = 0  # jobs whose report was not processed yet
        self._readers = LogFiles(disk)
        self._has_failed = False
        self._holds = 0  # number of `hold_files` calls without `release_files`
        self._is_stopped = False
        # Callers of `roll` that wait for the next block.
        self._rolls: list[Callable[[int], None]] = []
        self._is_gathering = False  # a block waits until a pass of the loop adds nothing
        self._gather_until_s = 0.0
        self._acks_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._jobs = JobWriter(disk, segments, reserve, self._report_done, self._report_failed)
        self._writer: JobThread[WriteJob] = disk.make_thread("leveret-log", self._jobs.do)

    def start(
        self, files: dict[int, int], covered: int, number: int, last_block: int
    ) -> OSError | None:
        """Begin a new file with this number. `files` are the existing files with their sizes.

        Return the fault if the disk is full: then the log tries again later.
        """
        self._set_files(files, covered, last_block)
        job = WriteJob([], last_block, 0, number)
        job.removable = [n for n in sorted(files) if self._journal.live.get(n, 0) == 0]
        self._begin_file(job, number)
        fault: OSError | None = None
        try:
            self._jobs.write(job)
        except OSError as full:
            if not is_full(full):
                raise
            fault = full
            self._jobs.clear_mark()  # deliveries begin, and the log cannot tell of them
            self._job = job
            self._retry_later(job)
        else:
            self._note_done(job)
        self._writer.start()
        return fault

    def _set_files(self, files: dict[int, int], covered: int, last_block: int) -> None:
        self._files = set(files)
        self._sizes = files
        self._covered = covered
        self.taken_block = last_block
        self.committed_block = last_block

    def _begin_file(self, job: WriteJob, number: int) -> None:
        """Let blocks after this job go to a new file, which starts with a checkpoint."""
        job.next_file = number
        kept = self._files.difference(job.removable)
        job.files = {file: self._sizes.get(file, 0) for file in kept}
        job.checkpoint = [*self.make_checkpoint(), self._stamp(NORMAL_BLOCK)]
        self._number = number
        self._files.add(number)
        self._place(number, HEAD_BYTES)

    def _place(self, number: int, offset: int) -> None:
        self._offset = offset
        self._journal.begin_block(number, offset + BLOCK_HEAD_BYTES + STAMP_BYTES)

    def _stamp(self, kind: int) -> bytes:
        """Return the first record of a block. Times in the log never go back."""
        self.last_ms = max(self.last_ms, self.now_ms())
        return encode_stamp(self.last_ms, self.term, kind)

    def start_writing(self) -> None:
        """Start writing the next block, if there is one and the thread is idle."""
        if self._is_gathering or not self._may_write():
            return
        if self._journal.waiting_bytes() == 0:
            if self._journal.has_emptied:
                self._remove_empty_files()
            return
        if not self._journal.must_sync and self._journal.waiting_bytes() < WAIT_BYTES_MAX:
            if self._acks_timer is None:
                self._acks_timer = self._loop.call_later(ACKS_WAIT_S, self._on_acks_waited)
            return
        self._is_gathering = True
        self._gather_until_s = self._loop.time() + GATHER_S
        self._loop.call_soon(self._gather, 0)

    def _may_write(self) -> bool:
        """Return True if the thread can take the next block."""
        return self._job is None and not self._has_failed and not self._is_stopped

    def _gather(self, bytes_before: int) -> None:
        """Write the next block, unless the last pass of the event loop has added to it."""
        waiting_bytes = self._journal.waiting_bytes()
        is_over = waiting_bytes >= WAIT_BYTES_MAX or self._loop.time() >= self._gather_until_s
        self._is_gathering = waiting_bytes > bytes_before and not is_over
        if self._is_gathering:
            self._loop.call_soon(self._gather, waiting_bytes)
        elif waiting_bytes != 0 and self._may_write():
            self._write_block()

    def _on_acks_waited(self) -> None:
        self._acks_timer = None
        if self._may_write() and self._journal.waiting_bytes() != 0:
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

    def sync_began_s(self) -> float:
        """Return when the running sync began, by `time.perf_counter`; 0 if none runs."""
        return self._jobs.sync_began_s

    def disk_bytes(self) -> int:
        """Return the size of all log files. The current file counts up to its last block."""
        return sum(self._sizes.get(number, 0) for number in self._files) + self._offset

    def _write_block(self) -> None:
        pieces = [self._stamp(NORMAL_BLOCK), *self._journal.take_block()]
        self.taken_block += 1
        job = WriteJob(pieces, self.taken_block, self._offset, self._number)
        self._take_effects(job)
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

    def _take_effects(self, job: WriteJob) -> None:
        """Let a job do the changes that wait until its block is safe."""
        job.definitions = self._journal.definitions
        job.released = self._journal.take_released()
        job.chunks = self._journal.take_written()
        job.dropped = self._journal.take_dropped()
        job.removable = self._empty_files()

    def _is_worth_leaving(self, size: int) -> bool:
        """Return True if disk space is short and the current file has no live message.

        `size` is that of its blocks.
        """
        is_empty = self._journal.live.get(self._number, 0) == 0
        return self.is_disk_short and is_empty and size >= self._file_bytes * _LEAVE_EARLY_SHARE

    def _remove_empty_files(self) -> list[int]:
        """Remove files that were emptied by blocks which are all on disk by now; return them."""
        files = self._empty_files()
        if files:
            job = WriteJob([], self.committed_block, self._offset, self._number)
            job.removable = files
            job.is_committed = True  # the blocks that emptied the files are committed
            self._hand_over(job)
        return files

    def is_writing(self) -> bool:
        """Return True if the thread is at work, or a result is not processed yet."""
        return self._submitted > 0 and self._retry_timer is None

    def _hand_over(self, job: WriteJob) -> None:
        self._job = job
        self._submit(job)

    def _submit(self, job: WriteJob) -> None:
        self._submitted += 1
        self._writer.submit(job)

    def _on_done(self, job: WriteJob) -> None:
        """Go on after the thread has done a job."""
        self._submitted -= 1
        if self._is_stopped:
            return
        self._note_written(job)
        self._finish(job)
        self.start_writing()

    def _note_written(self, job: WriteJob) -> None:
        """Note that the first half of a job is done."""
        if job is self._job:
            self._job = None
        self.syncs_done += 1
        if job.pieces:
            self.sync_times.observe(job.sync_s)

    def _finish(self, job: WriteJob) -> None:
        """Tell the engine that a block is safe, and that its job has changed the files."""
        journal = self._journal
        journal.synced_definitions = max(journal.synced_definitions, job.definitions)
        journal.release_now(job.released)
        self._note_done(job)
        if job.dropped:
            self._segments.forget(job.dropped)
        for chunk in job.chunks:
            chunk.owner.on_written(chunk)
        for done in job.on_rolled:
            done(self._covered)
        self.committed_block = max(self.committed_block, job.number)
        self.on_committed(self.committed_block)

    def _note_done(self, job: WriteJob) -> None:
        if job.next_file or job.new_file:
            self._covered = job.next_file or job.new_file
        for number in {*job.removable_now, *job.removable}:
            self._files.discard(number)
            self._sizes.pop(number, None)
            self._journal.live.pop(number, None)
            self._journal.totals.pop(number, None)
            self._readers.forget(number)

    def _on_failed(self, job: WriteJob, fault: OSError) -> None:
        self._submitted -= 1
        if self._is_stopped:
            return
        if is_temporary(fault):
            self._retry_later(job)
        else:
            self._has_failed = True
            for done in [*job.on_rolled, *self._rolls]:
                done(0)
        self.on_fault(fault)

    def fail(self, fault: OSError) -> None:
        """End all writing, as after a failed sync."""
        self._has_failed = True
        for done in self._rolls:
            done(0)
        self._rolls = []
        self.on_fault(fault)

    def _retry_later(self, job: WriteJob) -> None:
        self._retry_timer = self._loop.call_later(FULL_RETRY_S, self._retry, job)

    def _retry(self, job: WriteJob) -> None:
        """Try again. Files that were emptied meanwhile are removed first."""
        self._retry_timer = None
        self._journal.has_emptied = True
        job.removable_now = self._empty_files()
        self._submit(job)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a log file: from disk, the block being written, or the journal."""
        journal = self._journal
        running_job = self._job
        if number == journal.file and offset >= journal.start:
            return journal.read(offset, size)
        if running_job is not None and running_job.holds(number, offset):
            return running_job.read(offset, size)
        return self._readers.read(number, offset, size)

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
        if not self._has_failed:
            if self._job is not None:
                # Retry if the disk was full; otherwise it is written already.
                self._writer.submit(self._job)
            if self._journal.waiting_bytes() != 0:
                pieces = [self._stamp(NORMAL_BLOCK), *self._journal.take_block()]
                last = WriteJob(pieces, self.taken_block + 1, self._offset, self._number)
                last.chunks = self._journal.take_written()
                self._writer.submit(last)
        self._writer.finish()
        self._close()

    def _close(self) -> None:
        for timer in (self._acks_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        self._jobs.close()
        self._readers.close()
        self._segments.close()

    def _report_done(self, job: WriteJob) -> None:
        """Report from the log's thread."""
        self._call_on_loop(self._on_done, job)

    def _report_failed(self, job: WriteJob, fault: OSError) -> None:
        """Report from the log's thread."""
        self._call_on_loop(self._on_failed, job, fault)

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the node has stopped
            return


def _ignore(number: int) -> None:
    """Do nothing: the default for `on_committed`."""


def _ignore_fault(fault: OSError) -> None:
    """Do nothing: the default for `on_fault`."""
