"""Reads blocks back from log files, for followers that lag.

The log owns the files, and writes, cuts and removes them at the same time. So a file is opened for
each read, and each block is verified by its number and its checksum. A block that is missing or not
whole ends the answer.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.errors import CorruptionError
from leveret.storage.block_records import skip_blocks, stamped_kind, stamped_term
from leveret.storage.blocks import (
    BLOCK_BYTES_MAX,
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    check_head,
    first_block,
    is_block,
)
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import log_name, numbers
from leveret.storage.writer_thread import JobThread

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 1024 * 1024  # bytes of one read
PLACES_MAX: Final = 16  # remembered ends of reads: one for each follower that lags

FoundBlock = tuple[int, int, bytes]  # term, kind, data


class _ReadJob:
    """A request for blocks, for the thread."""

    def __init__(
        self, first: int, last: int, bytes_max: int, done: Callable[[list[FoundBlock]], None]
    ) -> None:
        self.first = first
        self.last = last
        self.bytes_max = bytes_max
        self.done = done


class BlockReader:
    """Reads blocks of one data directory in a thread of its own."""

    def __init__(self, disk: Disk, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._loop = loop
        # File and offset of the block after the last one of a read, by the number of that block.
        # The next read of the same follower continues there.
        self._places: dict[int, tuple[int, int]] = {}
        self._reader: JobThread[_ReadJob] = disk.make_thread("leveret-block-reader", self._do_read)
        self._is_started = False

    def read_blocks(
        self, first: int, last: int, bytes_max: int, done: Callable[[list[FoundBlock]], None]
    ) -> None:
        """Call `done` on the loop with term, kind and bytes of the blocks from `first` to `last`.

        The answer has at most `bytes_max` bytes, but at least one block. It may have fewer blocks,
        and it is empty if the first block is in no file.
        """
        if not self._is_started:
            self._is_started = True
            self._reader.start()
        self._reader.submit(_ReadJob(first, last, bytes_max, done))

    def close(self) -> None:
        """End the thread. Earlier calls of `read_blocks` are still answered, if the loop runs."""
        if self._is_started:
            self._is_started = False
            self._reader.finish()

    def _do_read(self, job: _ReadJob) -> None:
        blocks: list[FoundBlock] = []
        try:
            blocks = self.read_now(job.first, job.last, job.bytes_max)
        except FileNotFoundError:
            pass  # the log has removed the file: the follower gets a copy of the directory
        except OSError as fault:
            log.warning("the log could not be read for a node that is behind: %s", fault)
        try:
            self._loop.call_soon_threadsafe(job.done, blocks)
        except RuntimeError:  # the loop is closed: the node has stopped
            return

    def read_now(self, first: int, last: int, bytes_max: int) -> list[FoundBlock]:
        """Return blocks as `read_blocks` does, in the calling thread."""
        found: list[FoundBlock] = []
        number, offset = self._places.pop(first, (0, 0))
        is_guess = number != 0  # the files may have changed since the last read
        is_done = False
        while not is_done:
            following = first + len(found)
            if number == 0:
                number, offset = self._find(following)
                if number == 0:
                    return found
            room = bytes_max - sum([len(data) for _, _, data in found])
            offset, is_done = self._read_file(number, offset, following, last, room, found)
            if not is_done:
                if first + len(found) == following and not is_guess:
                    return found
                number = 0  # the file has no more blocks: continue in the next file
            is_guess = False
        self._places[first + len(found)] = (number, offset)
        if len(self._places) > PLACES_MAX:
            del self._places[next(iter(self._places))]
        return found

    def _find(self, index: int) -> tuple[int, int]:
        """Return file and offset of a block; (0, 0) if no file has it."""
        files = numbers(self._disk.names(), ".log")
        low, high = 0, len(files)
        while low < high:  # the first file that begins after the block
            middle = (low + high) // 2
            begin = read_first_block(self._disk, files[middle])
            if begin == 0 or begin > index:
                high = middle
            else:
                low = middle + 1
        if low == 0:
            return 0, 0
        file = self._disk.open(log_name(files[low - 1]))
        try:
            offset = locate_block(file, index)
        finally:
            file.close()
        return (files[low - 1], offset) if offset else (0, 0)

    def _read_file(
        self, number: int, offset: int, first: int, last: int, room: int, found: list[FoundBlock]
    ) -> tuple[int, bool]:
        """Append blocks of one file from `offset` on, within `room` bytes.

        Return where the next block begins, and whether no more blocks are wanted.
        """
        file = self._disk.open(log_name(number))
        try:
            cursor = BlockCursor(file, offset)
            while first <= last:
                block = cursor.take(first)
                size = len(block)
                if not block:
                    return offset, False
                if found and size > room:
                    break
                found.append((stamped_term(block, 0, size), stamped_kind(block, 0, size), block))
                room -= size
                first += 1
                offset = cursor.at
        finally:
            file.close()
        return offset, True


class BlockCursor:
    """Reads the blocks of an open log file one after the other."""

    def __init__(self, file: DiskFile, at: int = HEAD_BYTES) -> None:
        self._file = file
        self.at = at  # where the next block begins
        self._data = b""
        self._start = at  # offset of `_data`

    def take(self, index: int) -> bytes:
        """Return the next block; empty if it is not the whole block of this number."""
        size = int.from_bytes(self._bytes(BLOCK_HEAD_BYTES)[:4], "big")
        if size == 0 or size > BLOCK_BYTES_MAX:
            return b""
        block = self._bytes(BLOCK_HEAD_BYTES + size)
        if not is_block(block, index):
            return b""
        self.at += len(block)
        return block

    def _bytes(self, size: int) -> bytes:
        """Return up to `size` bytes at the current place."""
        at = self.at - self._start
        if at + size > len(self._data):
            self._data = self._file.read(max(size, SLICE_BYTES), self.at)
            self._start = self.at
            at = 0
        return self._data[at : at + size]


def read_first_block(disk: Disk, number: int) -> int:
    """Return the number of the first block of a log file; 0 if it has none, or no sound head."""
    file = disk.open(log_name(number))
    try:
        data = file.read(HEAD_BYTES + BLOCK_HEAD_BYTES, 0)
    finally:
        file.close()
    try:
        check_head(data, number, log_name(number))
    except CorruptionError:
        return 0
    return first_block(data) if len(data) == HEAD_BYTES + BLOCK_HEAD_BYTES else 0


def locate_block(file: DiskFile, index: int) -> int:
    """Return where a block begins in its log file; 0 if it is not there.

    Only the heads of the blocks before it are looked at.
    """
    at = HEAD_BYTES
    while True:
        data = file.read(SLICE_BYTES, at)
        passed = skip_blocks(data, index)
        head = data[passed : passed + BLOCK_HEAD_BYTES]
        if len(head) == BLOCK_HEAD_BYTES and int.from_bytes(head[8:16], "big") == index:
            return at + passed
        if passed == 0:  # the block is longer than a slice
            size = int.from_bytes(head[:4], "big")
            is_passed = len(head) == BLOCK_HEAD_BYTES and size > SLICE_BYTES - BLOCK_HEAD_BYTES
            if not is_passed or int.from_bytes(head[8:16], "big") > index:
                return 0
            passed = BLOCK_HEAD_BYTES + size
        at += passed
