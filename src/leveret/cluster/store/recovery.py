"""Reads a log when its node starts: checks all files, and replays the last one.

An incomplete block at the end of the last file was being written, and is cut off. Any other
incomplete block, a missing file with references, or a file of another node raises
`CorruptionError`: the node has lost data that it promised to keep, and must not start.
"""

from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader
from leveret.cluster.store.blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    FileHead,
    decode_file_head,
    require_torn,
    whole_block,
)
from leveret.cluster.store.checkpoint import read_checkpoint
from leveret.cluster.store.files import Files
from leveret.cluster.store.index import Index
from leveret.cluster.store.places import place
from leveret.errors import CorruptionError, StorageError


class Found:
    """What a start has found."""

    def __init__(self, head: FileHead) -> None:
        self.head = head  # of the last file
        self.index = Index()
        self.end: i64 = 0  # of the last file
        self.next_block: i64 = head.block
        self.torn_bytes: i64 = 0
        self.checkpoint_bytes: i64 = 0


def recover(files: Files, node: i64, cluster: i64) -> Found | None:
    """The log in these files; None if there is none yet."""
    files.settle()
    numbers = files.numbers()
    if not numbers:
        return None
    found = _replay(files, numbers[-1], node, cluster)
    files.cut(numbers[-1], found.end)
    _check_others(files, numbers[:-1], found)
    return found


def _head(data: bytes, file: i64, node: i64, cluster: i64) -> FileHead:
    head = decode_file_head(data, f"file {file}")
    if head.node != node or head.cluster != cluster:
        raise StorageError(f"the log is of node {head.node} in cluster {head.cluster}")
    if head.file != file:
        raise CorruptionError(f"file {file} holds file {head.file}")
    return head


def _replay(files: Files, file: i64, node: i64, cluster: i64) -> Found:
    """The index, from the last file."""
    data = files.read(file, 0, files.size(file))
    found = Found(_head(data, file, node, cluster))
    salt = found.head.salt
    base = place(file, 0)
    at: i64 = FILE_HEAD_BYTES
    while at < len(data):
        size = whole_block(data, at, found.next_block, salt)
        if size == 0:
            break
        reader = Reader(data, at + BLOCK_HEAD_BYTES, at + size)
        if at == FILE_HEAD_BYTES:
            found.index = read_checkpoint(reader)
            found.checkpoint_bytes = reader.at
        found.index.replay(reader, base)
        at += size
        found.next_block += 1
    if at == FILE_HEAD_BYTES:
        raise CorruptionError(f"file {file} is damaged in its first block")
    require_torn(data, at, found.next_block, salt, f"file {file}")
    found.end = at
    found.torn_bytes = len(data) - at
    found.index.space.add_file(file, at)
    return found


def _check_others(files: Files, numbers: list[int], found: Found) -> None:
    """Every file that something points to is whole; the others are removed."""
    space = found.index.space
    for file in numbers:
        if space.live.get(file, 0) == 0:
            files.remove(file)
        else:
            _check_file(files, file, found)
    for file, live in list(space.live.items()):
        if file in numbers or file == found.head.file:
            if live == 0 and file != found.head.file:
                space.forget(file)
        elif live:
            raise CorruptionError(f"file {file} is missing, and has {live} bytes that are needed")
        else:
            space.forget(file)


def _check_file(files: Files, file: i64, found: Found) -> None:
    data = files.read(file, 0, files.size(file))
    head = _head(data, file, found.head.node, found.head.cluster)
    if len(data) != found.index.space.size[file] or head.salt != found.head.salt:
        raise CorruptionError(f"file {file} is not as it was when the next one was begun")
    at: i64 = FILE_HEAD_BYTES
    number = head.block
    while at < len(data):
        size = whole_block(data, at, number, head.salt)
        if size == 0:
            raise CorruptionError(f"file {file} is damaged at {at}")
        at += size
        number += 1
