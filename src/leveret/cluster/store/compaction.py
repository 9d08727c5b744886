"""Compaction: writes the remaining data of a sparse file again, so that the file can be removed.

A step reads some blocks of the file and copies the referenced records into the next block of the
log. When the whole file was read, it has no references left, and is removed like any other such
file: after the copies are synced. A block with a wrong checksum is never copied.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader
from leveret.cluster.store.blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    FileHead,
    decode_file_head,
    whole_block,
)
from leveret.cluster.store.files import Files
from leveret.cluster.store.places import Space, place
from leveret.cluster.store.records import CHECKPOINT, Record, read_record
from leveret.errors import CorruptionError, FieldSyntaxError

# A file is compacted when less than this share of it is live.
LIVE_PERCENT_MIN: Final = 30


def sparsest(space: Space, end: i64) -> i64:
    """The file before `end` whose compaction gives most for its bytes; 0: none is worth it."""
    best: i64 = 0
    best_percent: i64 = LIVE_PERCENT_MIN
    for file, size in space.size.items():
        if file >= end:
            continue
        live = i64(space.live[file])
        percent = live * 100 // i64(size)
        if live > 0 and percent < best_percent:
            best = file
            best_percent = percent
    return best


class Scan:
    """Reads a file of the log block by block, to see what in it is still of use."""

    def __init__(self, files: Files, file: i64) -> None:
        self._files = files
        self.file: i64 = file
        self.size: i64 = files.size(file)
        self.at: i64 = FILE_HEAD_BYTES
        head = self._read_head()
        self._salt: i64 = head.salt
        self._number: i64 = head.block
        # The block that was read last
        self.data = b""
        self.base: i64 = 0  # the place of the first byte of `data`

    def _read_head(self) -> FileHead:
        return decode_file_head(
            self._files.read(self.file, 0, FILE_HEAD_BYTES), f"file {self.file}"
        )

    def is_done(self) -> bool:
        return self.at >= self.size

    def next(self) -> list[Record]:
        """The records of the next block."""
        head = self._files.read(self.file, self.at, BLOCK_HEAD_BYTES)
        size = BLOCK_HEAD_BYTES + i64(int.from_bytes(head[:4], "big"))
        if size > self.size - self.at:
            raise CorruptionError(f"file {self.file} is damaged at {self.at}")
        data = self._files.read(self.file, self.at, size)
        if whole_block(data, 0, self._number, self._salt) != size:
            raise CorruptionError(f"file {self.file} is damaged at {self.at}")
        self.data = data
        self.base = place(self.file, self.at)
        is_first = self.at == FILE_HEAD_BYTES
        self.at += size
        self._number += 1
        return _records(Reader(data, BLOCK_HEAD_BYTES, size), is_first)


def _records(reader: Reader, is_first: bool) -> list[Record]:
    records: list[Record] = []
    try:
        if is_first:
            if reader.u8() != CHECKPOINT:
                raise FieldSyntaxError("a file that begins without a checkpoint")
            reader.u64()
            reader.skip(reader.u32())
        while reader.left():
            records.append(read_record(reader))
    except FieldSyntaxError as fault:
        raise CorruptionError(f"a block whose sum is right cannot be read: {fault}") from fault
    return records
