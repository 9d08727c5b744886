"""The log of a node that leads a cluster: other nodes hold copies of its blocks.

Each block is given to the `Replication` when it is taken from the journal, and to the log's thread
at the same time. `commit_to` says when it is committed. Meanwhile further blocks are taken, until
`Replication.is_full`; then the journal grows, and publishers come to wait for it. Until its commit
a block may be cut off again, here and on the other nodes. So everything that depends on a block
waits for its commit: confirms, chunks in segments, and the removal of files.

A new file begins with a ROLL block, which holds the checkpoint:

    block 41    fills file 7           block 42    ROLL, the first block of file 8
    job 1       write, sync            job 2       create file 8, write, sync
    commit 41   chunks, removals       commit 42   sync segments, index of file 7, 8.settled

The file before stays as it is until the ROLL block is committed, so that it can be cut off.

A file is full when the blocks after its ROLL block have `file_bytes`. The state of the broker may
be larger than that, and must not be written again for each block.
"""

import asyncio
from collections import deque

from leveret.journal.cluster_records import encode_members_record, encode_roll
from leveret.journal.journal import Journal
from leveret.journal.records import MEMBERS_BLOCK, NORMAL_BLOCK, ROLL_BLOCK
from leveret.storage.answer_wait import AnswerWait
from leveret.storage.blocks import HEAD_BYTES
from leveret.storage.checkpoint import files_record
from leveret.storage.disk import Disk, is_temporary
from leveret.storage.disk_space import DiskReserve
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.replication import Replication
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.write_job import WriteJob


class ReplicatedLog(Log):
    """The log of a leader."""

    def __init__(
        self,
        disk: Disk,
        segments: SegmentFiles,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        reserve: DiskReserve,
        replication: Replication,
        *,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        super().__init__(disk, segments, journal, loop, reserve, file_bytes=file_bytes)
        self._jobs.is_alone = False
        self.term = replication.term
        self.newest_index = b""  # index of the newest file at the start, to be written
        self.answers = AnswerWait(loop.call_later, self.start_writing)
        self._replication = replication
        self._told_block = 0  # last block that was taken with more than acks in it
        self._safe_block = 0  # last block that `commit_to` named
        self._rolled_end = 0  # end of the ROLL block in the file that is being written
        self._writing: deque[WriteJob] = deque()  # jobs whose block is not on this disk
        self._written: deque[WriteJob] = deque()  # on this disk, but not committed
        self._committing: deque[WriteJob] = deque()  # committed, but not done
        self._leaving: set[int] = set()  # files that are removed when a block is committed

    def start(
        self, files: dict[int, int], covered: int, number: int, last_block: int
    ) -> OSError | None:
        """Begin a new file with a ROLL block, the block after `last_block`.

        A fault is reported by `on_fault`, as later.
        """
        self._set_files(files, covered, last_block)
        self._safe_block = last_block
        self._number = max(files, default=0)
        self._writer.start()
        empty = [n for n in sorted(files) if self._journal.live.get(n, 0) == 0]
        removable = [n for n in empty if n != self._number]  # see `_empty_files`
        self._leaving.update(removable)
        self._roll_file(number, self.newest_index, removable)
        self.newest_index = b""
        return None

    def newest_told_block(self) -> int:
        """Return the newest block that clients may be told of; it may not be taken yet.

        A block with nothing but acks and marks of deliveries does not count: a lost ack is a
        redelivery. While another node may lead, all output waits for the next block: that node may
        deliver the same messages, and not every delivery is recorded.
        """
        if self._journal.has_news() or not self._replication.has_lease():
            return self.taken_block + 1
        return self._told_block

    def write_members(self, members: bytes) -> int:
        """Write new members of the cluster after everything so far; return the block's number."""
        if self._journal.waiting_bytes() != 0:
            self._write_block()
        pieces = [self._stamp(MEMBERS_BLOCK), encode_members_record(members)]
        job = WriteJob(pieces, self.taken_block + 1, self._offset, self._number)
        self._ship(job, MEMBERS_BLOCK)
        return job.number

    def commit_to(self, number: int) -> None:
        """Note that all blocks up to a number are committed. Call this outside of turns.

        A block that is not on this disk yet is settled when it is.
        """
        self._safe_block = max(self._safe_block, number)
        self._settle_written()
        self._finish_committed()
        self.start_writing()

    def start_writing(self) -> None:
        """Start writing the next block, unless the answers of publishers are about to come."""
        if not self.answers.lasts(self._journal.waiting_bytes()):
            super().start_writing()

    def _may_write(self) -> bool:
        return super()._may_write() and not self._replication.is_full()

    def _write_block(self) -> None:
        """Take the next block, and write a ROLL block after it if the file is full."""
        self.answers.note_taken()
        has_news = self._journal.has_news()
        pieces = [self._stamp(NORMAL_BLOCK), *self._journal.take_block()]
        job = WriteJob(pieces, self.taken_block + 1, self._offset, self._number)
        self._take_effects(job)
        self._leaving.update(job.removable)
        self._ship(job, NORMAL_BLOCK)
        if has_news:
            self._told_block = job.number
        added_bytes = self._offset - self._rolled_end
        is_full = added_bytes >= self._file_bytes or self._is_worth_leaving(added_bytes)
        if is_full or self._rolls:
            self._sizes[self._number] = self._offset
            self._roll_file(self._number + 1, self._journal.take_index(), [])
            # The full file may have lost its last live message earlier.
            self._journal.has_emptied = True

    def _roll_file(self, number: int, index: bytes, removable: list[int]) -> None:
        """Begin a new file with a ROLL block. `index` is the index of the file before."""
        kept = self._files.difference(self._leaving)
        files = {file: self._sizes.get(file, 0) for file in kept}
        state = self.make_checkpoint()  # it names the last block before this one
        roll = encode_roll(number, self._replication.terms(), self._replication.members())
        pieces = [self._stamp(ROLL_BLOCK), roll, *state, files_record(files)]
        job = WriteJob(pieces, self.taken_block + 1, HEAD_BYTES, number)
        job.new_file = number
        job.full_file = self._number
        job.index = index
        job.files = files
        job.removable = removable
        job.on_rolled = self._rolls
        if self._rolls:
            self._holds += 1  # until the callers have taken over
        self._rolls = []
        self._number = number
        self._files.add(number)
        self._ship(job, ROLL_BLOCK)
        self._rolled_end = self._offset
        self._told_block = job.number

    def _ship(self, job: WriteJob, kind: int) -> None:
        """Give a block to the other nodes and to the thread."""
        data = job.join()
        self.taken_block = job.number
        self.written_bytes += len(data)
        self._place(job.file, job.offset + len(data))
        self._replication.append(job.number, self.term, kind, data)
        self._writing.append(job)
        self._hand_over(job)

    def _on_done(self, job: WriteJob) -> None:
        """Go on after the thread has done one half of a job."""
        self._submitted -= 1
        if self._is_stopped:
            return
        if job.is_done and not job.pieces:  # a removal of files alone
            self._note_written(job)
            self._finish(job)
        elif not job.is_done:
            self._note_written(job)
            assert job is self._writing[0]
            self._writing.popleft()
            self._written.append(job)
            self._replication.on_synced(job.number)
            self._settle_written()
        self._finish_committed()
        self.start_writing()

    def _settle_written(self) -> None:
        """Do the second half of the jobs whose blocks are committed."""
        written = self._written
        while written and written[0].number <= self._safe_block:
            job = written.popleft()
            job.is_committed = True
            self._committing.append(job)
            if job.has_disk_effects():
                self._submit(job)
            else:
                job.is_done = True

    def _finish_committed(self) -> None:
        """Tell the engine about committed blocks, in their order."""
        while self._committing and self._committing[0].is_done:
            job = self._committing.popleft()
            self._finish(job)
            if job.on_rolled:
                self._holds -= 1

    def _note_done(self, job: WriteJob) -> None:
        super()._note_done(job)
        self._leaving.difference_update(job.removable)

    def _empty_files(self) -> list[int]:
        """Return files that may go. The newest full file stays while there is space.

        A node that was away for a short time finds the blocks it lacks there. Without the file it
        would need a copy of the whole directory.
        """
        empty = [n for n in super()._empty_files() if n not in self._leaving]
        if not self.is_disk_short:
            full = max((n for n in self._files if n < self._number), default=0)
            empty = [n for n in empty if n != full]
        return empty

    def _remove_empty_files(self) -> list[int]:
        if self.committed_block != self.taken_block:
            return []
        files = super()._remove_empty_files()
        self._leaving.update(files)  # a ROLL block must not list a file that is about to go
        return files

    def _retry(self, job: WriteJob) -> None:
        """Try again. No file is removed for that: acks that are not committed may come back."""
        self._retry_timer = None
        self._submit(job)

    def _on_failed(self, job: WriteJob, fault: OSError) -> None:
        if not self._is_stopped and not is_temporary(fault):
            for other in [*self._writing, *self._written]:
                if other is not job:
                    for done in other.on_rolled:
                        done(0)
        super()._on_failed(job, fault)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a log file: from disk, a block on its way there, or the journal."""
        for job in reversed(self._writing):
            if job.holds(number, offset) and offset < job.offset + len(job.pieces[0]):
                return job.read(offset, size)
        return super().read(number, offset, size)

    def stop(self) -> None:
        """End like `abandon`: what is not committed was never told to anyone."""
        self.abandon()

    def abandon(self) -> None:
        """End because another node leads. Blocks until the thread has ended.

        Nothing more is taken from the journal. Blocks that were given to the other nodes are
        written, and nothing is settled that is not committed.
        """
        self._is_stopped = True
        self.answers.stop()
        has_failed = self._has_failed
        self._has_failed = True
        self._writer.finish()
        if not has_failed:
            self._jobs.write_rest()
        self._close()
