"""The write-ahead log: takes the journal's blocks, writes and syncs them in a thread of its own.

One block is on its way at a time; what the engine writes meanwhile is the next one (group commit).
A block that somebody waits for (`Journal.must_sync`) leaves at once, one of acks alone within
`ACKS_WAIT_S`, unless it is long. When the thread is done, `on_synced` is called on the event loop
with the number of the block: everything up to it is on disk.

A log file is full at `file_bytes`; the next block starts a new one, and a checkpoint of everything
before it is written, so that older files are needed only for the messages in them. A file that is
older than the last checkpoint and has no live message is removed; `Survivors` sees to it that a few
messages do not keep one for long.

A full disk keeps the block and tries again; every other fault ends all writing, because nobody can
know what is on disk after a failed sync (`on_fault`).
"""

import asyncio
import contextlib
import errno
import queue
import threading
from collections.abc import Callable
from typing import Final

from leveret.errors import Corrupt
from leveret.journal.journal import Journal
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, encode_block_head, encode_head
from leveret.storage.checkpoint import read_whole, write_checkpoint, write_index
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.names import index_name, log_name

FILE_BYTES: Final = 64 * 1024 * 1024
ACKS_WAIT_S: Final = 0.1
WAIT_BYTES_MAX: Final = 1024 * 1024  # a block of this size waits for nothing
FULL_RETRY_S: Final = 1.0


class Work:
    """One block, and the new file that follows it if the present one is full."""

    def __init__(self, pieces: list[bytes], number: int, offset: int) -> None:
        self.pieces = pieces
        self.number = number
        self.offset = offset
        self.released: list[int] = []  # positions that nobody needs once it is on disk
        self.removable: list[int] = []  # files that nobody needs then
        self.is_written = False
        self.is_followed = False  # by the new file
        self.next_file = 0  # number of the file to start after this block; 0 = none
        self.index = b""  # of the file that is full
        self.checkpoint: list[bytes] = []  # records of the checkpoint that goes with the new one


class Log:
    """The log of a running node."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        *,
        syncs: bool = True,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._loop = loop
        self._syncs = syncs
        self._file_bytes = file_bytes
        self.on_synced: Callable[[int], None] = _ignore
        self.on_fault: Callable[[OSError], None] = _ignore_fault
        self.make_checkpoint: Callable[[], list[bytes]] = list
        self.taken_block = 0  # number of the last block taken from the journal
        self.synced_block = 0  # number of the last block that is on disk
        self.syncs_done = 0
        self._files: set[int] = set()  # log files that exist
        self._number = 0  # of the file being written
        self._offset = 0  # where the next block goes
        self._file: DiskFile | None = None
        self._working: Work | None = None
        self._working_file = 0  # number of the file that it goes to
        self._readers: dict[int, DiskFile] = {}  # files that messages were read back from
        self._has_failed = False
        self._is_stopped = False
        self._acks_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leveret-log", daemon=True)

    def start(self, files: set[int], number: int, last_block: int) -> None:
        """Begin a new file of this number; `files` exist already."""
        self._files = files | {number}
        self.taken_block = last_block
        self.synced_block = last_block
        self._number = number
        self._file = self._create(number)
        self._place(number, HEAD_BYTES)
        self._thread.start()

    def _create(self, number: int) -> DiskFile:
        file = self._disk.create(log_name(number))
        try:
            file.write([encode_head(number)], 0)
            if self._syncs:
                file.sync()
                self._disk.sync_folder()
        except OSError:
            file.close()
            raise
        return file

    def _place(self, number: int, offset: int) -> None:
        self._offset = offset
        self._journal.place(number, offset + BLOCK_HEAD_BYTES)

    # On the event loop

    def kick(self) -> None:
        """Send the next block on its way, if there is one and none is."""
        if self._working is not None or self._has_failed:
            return
        if self._journal.size() == 0:  # every ack is on disk: nothing is to be waited for
            if self._journal.has_emptied:
                self._remove(self._empty_files())
            return
        if not self._journal.must_sync and self._journal.size() < WAIT_BYTES_MAX:
            if self._acks_timer is None:
                self._acks_timer = self._loop.call_later(ACKS_WAIT_S, self._on_acks_waited)
            return
        self._send()

    def _on_acks_waited(self) -> None:
        self._acks_timer = None
        if self._working is None and not self._has_failed and self._journal.size() != 0:
            self._send()

    def _send(self) -> None:
        pieces = self._journal.take()
        self.taken_block += 1
        work = Work(pieces, self.taken_block, self._offset)
        work.released = self._journal.take_released()
        work.removable = self._empty_files()
        self._working_file = self._number
        end = self._offset + BLOCK_HEAD_BYTES + sum(map(len, pieces))
        if end >= self._file_bytes:
            work.next_file = self._number + 1
            work.index = self._journal.take_index()
            work.checkpoint = self.make_checkpoint()
            self._number = work.next_file
            self._files.add(work.next_file)
            self._journal.has_emptied = True  # the full file may have been emptied before
            self._place(work.next_file, HEAD_BYTES)
        else:
            self._place(self._number, end)
        self._working = work
        self._queue.put(work)

    def _on_done(self, work: Work) -> None:
        if self._is_stopped:
            return
        self._working = None
        self.syncs_done += 1
        self._journal.release_now(work.released)
        self._remove(work.removable)
        self.synced_block = work.number
        self.on_synced(work.number)
        self.kick()

    def _on_failed(self, work: Work, fault: OSError) -> None:
        if self._is_stopped:
            return
        if is_full(fault):
            self.remove_empty_files()
            self._retry_timer = self._loop.call_later(FULL_RETRY_S, self._queue.put, work)
        else:
            self._has_failed = True
        self.on_fault(fault)

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
                raise Corrupt(f"{log_name(number)} is missing") from fault
            self._readers[number] = file
        return file.read(size, offset)

    def _empty_files(self) -> list[int]:
        """Files that no live message stands in and that the last checkpoint covers."""
        if not self._journal.has_emptied:
            return []
        self._journal.has_emptied = False
        live = self._journal.live
        return [n for n in self.covered_files() if live.get(n, 0) == 0]

    def covered_files(self) -> list[int]:
        """Files that are older than the last checkpoint: kept for their messages alone."""
        working = self._working
        newest = self._number if working is None or not working.next_file else self._number - 1
        return [n for n in sorted(self._files) if n < newest]

    def read_index(self, number: int) -> bytes | None:
        """The index of a full file; None where it cannot be read."""
        try:
            return read_whole(self._disk, index_name(number), number)
        except (OSError, Corrupt):
            return None

    def remove_empty_files(self) -> None:
        """Remove them now: at a start, and when the disk is full.

        Otherwise they go when the acks that emptied them are on disk.
        """
        self._journal.has_emptied = True
        self._remove(self._empty_files())

    def _remove(self, files: list[int]) -> None:
        live = self._journal.live
        for number in files:
            if live.get(number, 0) != 0 or number not in self._files:
                continue
            self._files.discard(number)
            live.pop(number, None)
            self._journal.totals.pop(number, None)
            reader = self._readers.pop(number, None)
            if reader is not None:
                reader.close()
            self._disk.remove(log_name(number))
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(index_name(number))

    def stop(self) -> None:
        """Write what is left, and end the thread. Blocks until that is done."""
        self._is_stopped = True
        for timer in (self._acks_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        if not self._has_failed:
            if self._working is not None:
                self._queue.put(self._working)  # again, if the disk was full; else it is written
            if self._journal.size() != 0:
                last = Work(self._journal.take(), self.taken_block + 1, self._offset)
                self._queue.put(last)
        self._queue.put(None)
        self._thread.join()
        if self._file is not None:
            self._file.close()
        for file in self._readers.values():
            file.close()

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
        """Write a block. After a full disk it is called again, and goes on where it was."""
        file = self._file
        assert file is not None
        if not work.is_written:
            file.write([encode_block_head(work.pieces, work.number), *work.pieces], work.offset)
            if self._syncs:
                file.sync()
            work.is_written = True
        if work.next_file and not work.is_followed:
            write_index(self._disk, work.next_file - 1, work.index)
            following = self._create(work.next_file)
            try:
                write_checkpoint(self._disk, work.next_file, work.checkpoint)
            except OSError:
                following.close()
                raise
            self._file = following
            work.is_followed = True
            file.close()

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the node has stopped, nobody listens
            return


def _ignore(number: int) -> None:
    """Nobody wants to know."""


def _ignore_fault(fault: OSError) -> None:
    """Nobody wants to know."""
