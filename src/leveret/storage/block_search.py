"""Searches for valid blocks in bytes of a log file, to tell damage from a torn write.

`leveret.storage.blocks` defines the format of a block. This module is compiled, because a search
may try every offset of a file.
"""

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.checksum import crc32


def has_later_block(data: bytes, at: i64, last_block: i64) -> bool:
    """Return True if a valid block follows after invalid bytes: then they are not a torn end.

    A block has at least 17 bytes, which limits its number.
    """
    return find_block(data, at, last_block, last_block + 1 + (len(data) - at) // 17) >= 0


def find_block(data: bytes, at: i64, after: i64, highest: i64) -> i64:
    """Return the start of the next valid block; -1 if there is none.

    The number of the block is above `after` and at most `highest`. If the bytes at `at` look like a
    block head whose size leads to a valid block, that block is returned. So bytes inside a message
    are not mistaken for a block of the log. Otherwise every offset is tried.
    """
    end: i64 = len(data)
    if end - at >= 17 and not _is_block(data, at, after, highest):
        stop = at + 16 + (i64(read_i32_be(data, at)) & 0xFFFFFFFF)
        if stop != at + 16 and _is_block(data, stop, after, highest):
            return stop
    while end - at >= 17:
        if _is_block(data, at, after, highest):
            return at
        at += 1
    return -1


def _is_block(data: bytes, at: i64, after: i64, highest: i64) -> bool:
    end: i64 = len(data)
    if end - at < 17:
        return False
    number = read_i64_be(data, at + 8)
    if number <= after or number > highest:
        return False
    size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    if size == 0 or size > end - at - 16:
        return False
    crc = i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF
    return crc32(data[at + 8 : at + 16 + size]) == crc
