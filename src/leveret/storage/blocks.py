"""Encoding of log files and their blocks.

    file   = head block*
    head   = "LEVERET" 0x01  version:u32  file:u64  crc:u32           24 bytes
    block  = size:u32  crc:u32  number:u64  records                   16 bytes and the records

The head is the same in every version, and its checksum covers the bytes before it. The `size` of a
block counts the records; its checksum covers number and records. Block numbers grow by one through
all files of a node. So a block that was left over from an older file, or written to the wrong
place, is recognised by its number. Bytes after the last whole block are a torn write if no later
block follows them, and damage if one does.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.errors import CorruptionError, NewerFormatError

MAGIC: Final = b"LEVERET\x01"
VERSION: Final = 1
HEAD_BYTES: Final = 24
BLOCK_HEAD_BYTES: Final = 16
BLOCK_BYTES_MAX: Final = 1 << 30


def encode_head(file: int) -> bytes:
    data = MAGIC + VERSION.to_bytes(4, "big") + file.to_bytes(8, "big")
    return data + crc32(data).to_bytes(4, "big")


def check_head(data: bytes, file: int, name: str) -> None:
    """Raise CorruptionError if `data` does not begin with the head of this file."""
    if len(data) < HEAD_BYTES or data[:8] != MAGIC:
        raise CorruptionError(f"{name} is not a log file")
    if crc32(data[:20]) != int.from_bytes(data[20:24], "big"):
        raise CorruptionError(f"{name} has a damaged head")
    version = int.from_bytes(data[8:12], "big")
    if version > VERSION:
        raise NewerFormatError(f"{name} has format {version}; this version reads up to {VERSION}")
    if int.from_bytes(data[12:20], "big") != file:
        raise CorruptionError(f"{name} has the head of another log file")


def first_block(data: bytes) -> int:
    """Return the number of the first block of a log file, 0 if it has none."""
    return int.from_bytes(data[HEAD_BYTES + 8 : HEAD_BYTES + BLOCK_HEAD_BYTES], "big")


class BlockHead:
    """Computes the head of a block whose records come in parts."""

    def __init__(self, number: int) -> None:
        self.size: int = 0  # bytes of the records so far
        self._shown = number.to_bytes(8, "big")
        self._crc: int = crc32(self._shown)

    def add(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._crc = crc32(piece, self._crc)
            self.size += len(piece)

    def encode(self) -> bytes:
        assert 0 < self.size <= BLOCK_BYTES_MAX
        return self.size.to_bytes(4, "big") + self._crc.to_bytes(4, "big") + self._shown


def encode_block_head(pieces: list[bytes], number: int) -> bytes:
    head = BlockHead(number)
    head.add(pieces)
    return head.encode()


def block_end(data: bytes, at: int, number: int) -> int:
    """Return the end of the block at `at`; 0 if no whole block of that number is there."""
    if at + BLOCK_HEAD_BYTES > len(data):
        return 0
    size = int.from_bytes(data[at : at + 4], "big")
    end = at + BLOCK_HEAD_BYTES + size
    if size == 0 or end > len(data):
        return 0
    if int.from_bytes(data[at + 8 : at + 16], "big") != number:
        return 0
    crc = int.from_bytes(data[at + 4 : at + 8], "big")
    return end if crc32(memoryview(data)[at + 8 : end]) == crc else 0


def is_block(data: bytes, index: i64) -> bool:
    """Return True if `data` is the whole block of this number, and nothing else."""
    size: i64 = len(data) - BLOCK_HEAD_BYTES
    return (
        size > 0
        and i64(read_i32_be(data, 0)) & 0xFFFFFFFF == size
        and read_i64_be(data, 8) == index
        and crc32(memoryview(data)[8:]) == i64(read_i32_be(data, 4)) & 0xFFFFFFFF
    )
