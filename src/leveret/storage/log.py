"""The write-ahead log: takes the journal's blocks, writes and syncs them in a thread of its own.

One block is on its way at a time; what the engine writes meanwhile is the next one (group commit).
A block that somebody waits for (`Journal.must_sync`) leaves at once, one of acks alone within
`ACKS_WAIT_S`, unless it is long. When the thread is done, `on_synced` is called on the event loop
with the number of the block: everything up to it is on disk.

A log file is full at `file_bytes`; the next block starts a new one, and a checkpoint of everything
before it is written, so that older files are needed only for the messages in them. A file that is
older than the last checkpoint and has no live message is removed; `Survivors` sees to it that a few
messages do not keep one for long.

Chunks of streams are put into their segments when their block is synced, and the segments are
synced before the next checkpoint.

A full disk takes the reserve; where there is none it keeps the block and tries again. While room is
short (`is_short`), a file is left early if that allows to remove it. Every other fault ends all
writing, because nobody can know what is on disk after a failed sync (`on_fault`).
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
from leveret.storage.disk import Disk, DiskFile, is_full, passes
from leveret.storage.names import index_name, log_name
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.space import Reserve

FILE_BYTES: Final = 64 * 1024 * 1024
ACKS_WAIT_S: Final = 0.1
WAIT_BYTES_MAX: Final = 1024 * 1024  # a block of this size waits for nothing
FULL_RETRY_S: Final = 1.0
# What a file must hold of its size to be worth leaving for the sake of its room.
_WORTH: Final = 1 / 16
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


class Work:
    """One block, and the new file that follows it if the present one is full.

    Without a block it begins the first file of a node, or removes files.
    """

    def __init__(self, pieces: list[bytes], number: int, offset: int) -> None:
        self.pieces = pieces
        self.number = number
        self.offset = offset
        self.released: list[int] = []  # positions that nobody needs once it is on disk
        self.removable: list[int] = []  # files that nobody needs then
        self.chunks: list[WrittenChunk] = []  # of streams, to be put into their segments
        self.dropped: list[tuple[int, int]] = []  # segments that nobody needs then
        self.spare: list[int] = []  # files that nobody needs now: a full disk wants their room
        self.is_written = not pieces
        self.is_followed = False  # by the new file
        self.sync_s = 0.0  # what writing and syncing the block took
        self.next_file = 0  # number of the file to start after this block; 0 = none
        self.index = b""  # of the file that is full
        self.checkpoint: list[bytes] = []  # records of the checkpoint that goes with the new one
        self.rolled: list[Callable[[int], None]] = []  # who wanted the new one
        self.files: dict[int, int] = {}  # sizes of the older files, for the checkpoint


class Log:
    """The log of a running node."""

    def __init__(
        self,
        disk: Disk,
        segments: SegmentFiles,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        reserve: Reserve,
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
        self.sync_times = Histogram(SYNC_BOUNDS_S)  # of blocks: to write and to sync them
        self.written_bytes = 0  # in blocks, since the start
        self.is_short = False  # of room on the disk
        self._files: set[int] = set()  # log files that exist
        self._sizes: dict[int, int] = {}  # of those that are full
        self._number = 0  # of the file being written
        self._covered = 0  # files before this one are covered by a checkpoint
        self._offset = 0  # where the next block goes
        self._file: DiskFile | None = None
        self._working: Work | None = None
        self._working_file = 0  # number of the file that it goes to
        self._readers: dict[int, DiskFile] = {}  # files that messages were read back from
        self._has_failed = False
        self._holds = 0  # readers that need every file
        self._is_stopped = False
        self._rolls: list[Callable[[int], None]] = []  # who wants a new file
        self._acks_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run, name="leveret-log", daemon=True)

    def start(
        self, files: dict[int, int], covered: int, number: int, last_block: int
    ) -> OSError | None:
        """Begin a new file of this number; `files` exist already and have these sizes.

        What is returned is why that cannot be done for now: the disk is full.
        """
        self._files = set(files)
        self._sizes = files
        self._covered = covered
        self.taken_block = last_block
        self.synced_block = last_block
        work = Work([], last_block, 0)
        work.removable = [n for n in sorted(files) if self._journal.live.get(n, 0) == 0]
        self._working_file = number
        self._begin_file(work, number)
        fault: OSError | None = None
        try:
            self._write(work)
        except OSError as full:
            if not is_full(full):
                raise
            fault = full
            self._working = work
            self._retry_later(work)
        else:
            self._note_done(work)
        self._writer.start()
        return fault

    def _begin_file(self, work: Work, number: int) -> None:
        """Blocks after this work go to a new file; what was before is in the checkpoint."""
        work.next_file = number
        kept = self._files.difference(work.removable)
        work.files = {file: self._sizes.get(file, 0) for file in kept}
        work.checkpoint = self.make_checkpoint()
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

    # On the event loop

    def kick(self) -> None:
        """Send the next block on its way, if there is one and none is."""
        if self._working is not None or self._has_failed:
            return
        if self._journal.waiting_bytes() == 0:
            if self._journal.has_emptied:
                self._send_removal()
            return
        if not self._journal.must_sync and self._journal.waiting_bytes() < WAIT_BYTES_MAX:
            if self._acks_timer is None:
                self._acks_timer = self._loop.call_later(ACKS_WAIT_S, self._on_acks_waited)
            return
        self._send()

    def _on_acks_waited(self) -> None:
        self._acks_timer = None
        if self._working is None and not self._has_failed and self._journal.waiting_bytes() != 0:
            self._send()

    def roll(self, done: Callable[[int], None]) -> None:
        """Begin a new file with the next block, whatever the size of the present one.

        `done` is told its number when its checkpoint is on disk, and 0 if that cannot be: until it
        returns, no file that the checkpoint needs is removed.
        """
        if self._has_failed:
            done(0)
            return
        self._rolls.append(done)
        self._journal.write_nothing()
        self.kick()

    def files(self) -> list[int]:
        """The log files that exist."""
        return sorted(self._files)

    def disk_bytes(self) -> int:
        """Size of all log files, about: the one being written counts up to where it is."""
        return sum(self._sizes.get(number, 0) for number in self._files) + self._offset

    def _send(self) -> None:
        pieces = self._journal.take_block()
        self.taken_block += 1
        work = Work(pieces, self.taken_block, self._offset)
        work.released = self._journal.take_released()
        work.chunks = self._journal.take_written()
        work.dropped = self._journal.take_dropped()
        work.removable = self._empty_files()
        self._working_file = self._number
        end = self._offset + BLOCK_HEAD_BYTES + sum(map(len, pieces))
        self.written_bytes += end - self._offset
        is_left = self._is_worth_leaving(end)
        if end >= self._file_bytes or is_left or self._rolls:
            work.rolled = self._rolls
            self._rolls = []
            index = self._journal.take_index()
            work.index = b"" if is_left else index  # what goes at once needs none
            self._sizes[self._number] = end
            self._begin_file(work, self._number + 1)
            self._journal.has_emptied = True  # the full file may have been emptied before
        else:
            self._place(self._number, end)
        self._hand_over(work)

    def _is_worth_leaving(self, end: int) -> bool:
        """Whether the present file takes room that is needed, and nobody needs the file."""
        is_empty = self._journal.live.get(self._number, 0) == 0
        return self.is_short and is_empty and end >= self._file_bytes * _WORTH

    def _send_removal(self) -> None:
        """Everything is on disk: what it has emptied can go."""
        files = self._empty_files()
        if files:
            work = Work([], self.taken_block, self._offset)
            work.removable = files
            self._working_file = self._number
            self._hand_over(work)

    def is_writing(self) -> bool:
        """Whether the thread has something to do, or has done it and was not heard yet."""
        return self._working is not None and self._retry_timer is None and not self._has_failed

    def _hand_over(self, work: Work) -> None:
        self._working = work
        self._queue.put(work)

    def _on_done(self, work: Work) -> None:
        if self._is_stopped:
            return
        self._working = None
        self.syncs_done += 1
        if work.pieces:
            self.sync_times.observe(work.sync_s)
        self._journal.release_now(work.released)
        self._note_done(work)
        self._segments.forget(work.dropped)
        for chunk in work.chunks:
            chunk.owner.on_written(chunk)
        for done in work.rolled:
            done(work.next_file)
        self.synced_block = work.number
        self.on_synced(work.number)
        self.kick()

    def _note_done(self, work: Work) -> None:
        if work.next_file:
            self._covered = work.next_file
        for number in {*work.spare, *work.removable}:
            self._files.discard(number)
            self._sizes.pop(number, None)
            self._journal.live.pop(number, None)
            self._journal.totals.pop(number, None)
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.close()

    def _on_failed(self, work: Work, fault: OSError) -> None:
        if self._is_stopped:
            return
        if passes(fault):
            self._retry_later(work)
        else:
            self._has_failed = True
            for done in [*work.rolled, *self._rolls]:
                done(0)
        self.on_fault(fault)

    def _retry_later(self, work: Work) -> None:
        self._retry_timer = self._loop.call_later(FULL_RETRY_S, self._retry, work)

    def _retry(self, work: Work) -> None:
        """Try again; files that were emptied meanwhile go first, and their acks follow."""
        self._retry_timer = None
        self._journal.has_emptied = True
        work.spare = self._empty_files()
        self._queue.put(work)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of a log file, whether they are on disk, on their way or still in the journal."""
        journal = self._journal
        working = self._working
        if number == journal.file and offset >= journal.start:
            return journal.peek()[offset - journal.start :][:size]
        if working is not None and number == self._working_file:
            start = working.offset + BLOCK_HEAD_BYTES
            if offset >= start:
                return b"".join(working.pieces)[offset - start :][:size]
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
        """Files that no live message stands in and that the last checkpoint covers."""
        if not self._journal.has_emptied or self._holds != 0:
            return []
        self._journal.has_emptied = False
        live = self._journal.live
        return [n for n in self.covered_files() if live.get(n, 0) == 0]

    def hold(self) -> None:
        """Remove no file until `let_go`: somebody reads them as they are now."""
        self._holds += 1

    def let_go(self) -> None:
        """Undo one `hold`."""
        self._holds -= 1
        self.kick()

    def covered_files(self) -> list[int]:
        """Files that are older than the last checkpoint: kept for their messages alone."""
        return [n for n in sorted(self._files) if n < self._covered]

    def read_index(self, number: int) -> bytes | None:
        """The index of a full file; None where it cannot be read."""
        try:
            return read_whole(self._disk, index_name(number), number)
        except (OSError, CorruptionError):
            return None

    def stop(self) -> None:
        """Write what is left, and end the thread. Blocks until that is done."""
        self._is_stopped = True
        for timer in (self._acks_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if not self._has_failed:
            if self._working is not None:
                self._queue.put(self._working)  # again, if the disk was full; else it is written
            if self._journal.waiting_bytes() != 0:
                last = Work(self._journal.take_block(), self.taken_block + 1, self._offset)
                last.chunks = self._journal.take_written()
                self._queue.put(last)
        self._queue.put(None)
        self._writer.join()
        if self._file is not None:
            self._file.close()
        for file in self._readers.values():
            file.close()
        self._segments.close()

    # In the thread

    def _run(self) -> None:
        failed: Work | None = None
        while True:
            work = self._queue.get()
            if work is None:
                return
            if failed is not None and work is not failed:
                continue  # what follows a block that was not written must not be written either
            try:
                self._write(work)
            except OSError as fault:
                failed = work
                self._tell(self._on_failed, work, fault)
            except Exception as fault:  # a fault of ours ends the writing as one of the disk does
                failed = work
                self._tell(self._on_failed, work, OSError(errno.EIO, str(fault)))
            else:
                failed = None
                self._tell(self._on_done, work)

    def _write(self, work: Work) -> None:
        """Do what is to be done, if need be with the room of the reserve."""
        try:
            self._go_on(work)
        except OSError as fault:
            if not is_full(fault) or not self._reserve.give_up():
                raise
            self._go_on(work)

    def _go_on(self, work: Work) -> None:
        """Write a block. After a full disk it is called again, and goes on where it was."""
        remove_logs(self._disk, work.spare, work.number - (not work.is_written))
        if not work.is_written:
            file = self._file
            assert file is not None
            began_s = time.perf_counter()
            file.write([encode_block_head(work.pieces, work.number), *work.pieces], work.offset)
            file.sync()
            work.sync_s = time.perf_counter() - began_s
            work.is_written = True
        self._segments.append(work.chunks)
        self._segments.remove(work.dropped)
        if work.next_file and not work.is_followed:
            self._follow(work)
            work.is_followed = True
        remove_logs(self._disk, work.removable, work.number)

    def _follow(self, work: Work) -> None:
        """Begin the next file. It comes before its checkpoint, which says that it is there."""
        self._segments.sync()
        write_index(self._disk, work.next_file - 1, work.index)
        following = self._create(work.next_file)
        try:
            write_checkpoint(self._disk, work.next_file, work.files, work.checkpoint)
        except OSError:
            following.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file = following

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the node has stopped, nobody listens
            return


def _ignore(number: int) -> None:
    """Nobody wants to know."""


def _ignore_fault(fault: OSError) -> None:
    """Nobody wants to know."""
