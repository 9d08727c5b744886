"""Does the jobs of the log, in the log's thread: writes blocks, begins files, settles effects.

A job has two halves (`write_job`). On a single node a block is committed when it is synced, so the
second half follows at once. In a replicated log the job is submitted a second time when its block
is committed, and the second half is done then.

If a job fails, all later jobs wait: a block must not be written before all blocks before it. The
failed job is submitted again, and continues where it stopped.
"""

import errno
import logging
import time
from collections import deque
from collections.abc import Callable

from leveret.storage.checkpoint import (
    remove_logs,
    settle_roll,
    write_checkpoint,
    write_index,
)
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.disk_space import DiskReserve
from leveret.storage.log_files import create_log
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.synced_mark import SyncedMark
from leveret.storage.write_job import WriteJob

log = logging.getLogger(__name__)


class JobWriter:
    """The state of the log's thread: the file being written, and the jobs that wait."""

    def __init__(
        self,
        disk: Disk,
        segments: SegmentFiles,
        reserve: DiskReserve,
        report_done: Callable[[WriteJob], None],
        report_failed: Callable[[WriteJob, OSError], None],
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._reserve = reserve
        self._report_done = report_done
        self._report_failed = report_failed
        self.is_alone = True  # not in a cluster: a block is committed when it is synced
        self.sync_began_s = 0.0  # when the running write and sync began; 0: none runs
        self._file: DiskFile | None = None
        self._mark = SyncedMark(disk)
        self._undone: deque[WriteJob] = deque()  # unfinished jobs; the first may have failed

    def do(self, job: WriteJob) -> None:
        """Do a job, and report the result."""
        undone = self._undone
        if not undone or job is not undone[0]:
            undone.append(job)
        if job is not undone[0]:
            return
        while undone:
            job = undone[0]
            try:
                self.write(job)
            except OSError as fault:
                self._fail(job, fault)
                return
            except Exception as fault:  # our own errors end the writing, like errors of the disk
                log.error("the log stops because of a bug: please report it", exc_info=fault)
                text = f"{type(fault).__name__}, a bug of the broker"  # clients read this text
                self._fail(job, OSError(errno.EIO, text))
                return
            undone.popleft()
            self._report_done(job)

    def _fail(self, job: WriteJob, fault: OSError) -> None:
        self.sync_began_s = 0.0
        self._report_failed(job, fault)

    def write(self, job: WriteJob) -> None:
        """Do a job; if the disk is full, give up the reserve and try once more."""
        try:
            self._resume(job)
        except OSError as fault:
            if not is_full(fault) or not self._reserve.give_up():
                raise
            self._resume(job)

    def _resume(self, job: WriteJob) -> None:
        """Do the steps of a job that are not done yet. After a full disk this continues the job."""
        if job.removable_now:
            remove_logs(self._disk, job.removable_now, job.number - (not job.is_written))
        if job.new_file and not job.is_next_created:
            self._begin_file(job, job.new_file)
        if not job.is_written:
            file = self._file
            assert file is not None
            began_s = time.perf_counter()
            self.sync_began_s = began_s
            file.write(job.encoded(), job.offset)
            file.sync()
            job.sync_s = time.perf_counter() - began_s
            self.sync_began_s = 0.0
            job.is_written = True
            self._mark.note(job.number)
        if job.next_file and not job.is_next_created:
            self._begin_file(job, job.next_file)
        if job.is_committed or self.is_alone:
            self._settle(job)

    def clear_mark(self) -> None:
        """Take back the mark of the node before, which may have stopped in order."""
        self._mark.clear()

    def _begin_file(self, job: WriteJob, number: int) -> None:
        """Create the file for the next block. It has no checkpoint yet, and needs none."""
        self._mark.open()
        following = create_log(self._disk, number)
        if self._file is not None:
            self._file.close()
        self._file = following
        job.is_next_created = True

    def _settle(self, job: WriteJob) -> None:
        """Do the second half of a job: its block is committed."""
        self._segments.append(job.chunks)
        self._segments.remove(job.dropped)
        if job.next_file and not job.is_next_begun:
            self._segments.sync()
            write_index(self._disk, job.next_file - 1, job.index)
            write_checkpoint(self._disk, job.next_file, job.files, job.checkpoint)
            job.is_next_begun = True
        if job.new_file and not job.is_next_begun:
            self._segments.sync()
            write_index(self._disk, job.full_file, job.index)
            settle_roll(self._disk, job.new_file, job.files)
            job.is_next_begun = True
        remove_logs(self._disk, job.removable, job.number)
        job.is_done = True

    def write_rest(self) -> None:
        """Write the blocks of jobs that failed or waited, as far as the disk allows.

        The thread has ended. The effects of blocks that are written already can wait: a start does
        them again.
        """
        for job in self._undone:
            if not job.is_written:
                try:
                    self.write(job)
                except OSError:  # its fault was reported while the thread ran
                    return

    def close(self) -> None:
        """Close the file being written, and the mark."""
        self._mark.close()
        if self._file is not None:
            self._file.close()
