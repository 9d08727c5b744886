"""Checkpoints: what held when a log file began; and the indexes of full log files.

A checkpoint is a file in the format of the log with one block (number 0) of records: definitions,
and for every durable queue what is gone of it, how far it was delivered, and which of its messages
came back. With it, older log files are needed for the messages in them, and for nothing else.

It is written under another name, synced, and renamed: a checkpoint that has its name is whole.
"""

from typing import Final

from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_block_head,
    encode_head,
)
from leveret.storage.disk import Disk
from leveret.storage.names import checkpoint_name, index_name, numbers

ONLY_BLOCK: Final = 0
_NOTHING: Final = b"\x00\x00\x00\x00\x00"  # a record of no kind: a block is never empty


def write_checkpoint(disk: Disk, number: int, records: list[bytes]) -> None:
    """Make this the checkpoint before log file `number`, then drop older ones."""
    write_whole(disk, checkpoint_name(number), number, records)
    for older in numbers(disk.names(), ".checkpoint"):
        if older < number:
            disk.remove(checkpoint_name(older))


def write_index(disk: Disk, number: int, index: bytes) -> None:
    """Keep where the messages of a full log file stand."""
    if index:
        write_whole(disk, index_name(number), number, [index])


def write_whole(disk: Disk, name: str, number: int, pieces: list[bytes]) -> None:
    """Write a file that is there either whole or not at all."""
    file = disk.create(name + ".new")
    try:
        pieces = [piece for piece in pieces if piece] or [_NOTHING]
        head = encode_block_head(pieces, ONLY_BLOCK)
        file.write([encode_head(number), head, *pieces], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(name + ".new", name)
    disk.sync_folder()


def read_whole(disk: Disk, name: str, number: int) -> bytes | None:
    """What `write_whole` wrote; None where it is damaged."""
    data = read_file(disk, name)
    check_head(data, number, name)
    end = block_end(data, HEAD_BYTES, ONLY_BLOCK)
    return data[HEAD_BYTES + BLOCK_HEAD_BYTES : end] if end else None


def read_file(disk: Disk, name: str) -> bytes:
    """All bytes of a file."""
    file = disk.open(name)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
