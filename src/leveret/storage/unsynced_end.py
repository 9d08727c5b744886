"""Write the end of the log again at a start, if the last node may not have synced it.

After a failed sync, Linux keeps the written pages in memory and takes them for clean. A start on
the same machine then reads blocks that are not on disk, and a further sync does not write them. A
power loss later would take them back, although clients may have been told of them meanwhile: a
message that counts as a duplicate of one of them is confirmed. Written again, the pages are dirty,
and the next sync writes them.

Only the newest file can have blocks that were not synced: a file is begun after the last block of
the file before it was synced. The mark `synced` names the last block that was. Without a mark, all
blocks of the newest file are written again.
"""

import struct
from collections.abc import Iterator
from typing import Final

from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.disk import Disk
from leveret.storage.file_names import log_name
from leveret.storage.synced_mark import read_mark

_SLICE_BYTES: Final = 1024 * 1024  # read at once, or written between two steps
_BLOCK_HEAD: Final = struct.Struct(">IIQ")  # size, checksum, number


def write_unsynced_end(disk: Disk, number: int, at: int, end: int) -> Iterator[None]:
    """Write and sync the blocks between two places of the newest file again, in steps."""
    if at >= end:
        return
    file = disk.open(log_name(number))
    try:
        while at < end:
            size = min(_SLICE_BYTES, end - at)
            file.write([file.read(size, at)], at)
            at += size
            yield
        file.sync()
    finally:
        file.close()


def find_synced_end(disk: Disk, number: int, end: int) -> int:
    """Return where the blocks of a file end that the mark covers, and at most `end`."""
    synced_block = read_mark(disk) or 0
    file = disk.open(log_name(number))
    try:
        at = HEAD_BYTES
        while at < end:
            data = file.read(min(_SLICE_BYTES, end - at), at)
            if len(data) < BLOCK_HEAD_BYTES:
                break
            inner = 0  # where the next block begins in `data`
            while inner + BLOCK_HEAD_BYTES <= len(data):
                size, _, block = _BLOCK_HEAD.unpack_from(data, inner)
                if block > synced_block:
                    return at + inner
                inner += BLOCK_HEAD_BYTES + size
            at += inner
        return end
    finally:
        file.close()
