"""Find where a recovery starts: at a checkpoint file, or at a ROLL block of a replicated log.

A single node writes a checkpoint file when a log file begins. In a replicated log the first block
of each file, a ROLL block, holds the checkpoint. A recovery starts with the newest ROLL block that
is settled: all blocks before it are committed, and their chunks are in the segments. The mark
`.settled` says so. Without the mark a recovery goes back, file by file, because the chunks may be
in the log only. It goes back no further than to a gap: a log file is removed when a later file is
settled.

    6.log   7.log   8.log   9.log          8.settled         start at 8
    ROLL    ROLL    ROLL    ROLL torn      7.checkpoint      start at 7
                                           neither           start at 6
"""

from collections.abc import Iterator
from typing import Final

from leveret.errors import CorruptionError
from leveret.journal.cluster_records import find_roll, is_roll_block
from leveret.journal.records import (
    FILES,
    GONE,
    MARK,
    RECORD_HEAD_BYTES,
    RETURNED,
    STAMP,
)
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, block_end, check_head
from leveret.storage.disk import Disk
from leveret.storage.file_names import log_name, numbers
from leveret.storage.replay import Replay

# Records of a ROLL block that say something about messages. They can be replayed again.
_STATE: Final = (STAMP, GONE, RETURNED, MARK)


class RecoveryStart:
    """The place where a recovery starts."""

    def __init__(self, number: int) -> None:
        self.number = number  # of the log file; 0 if there is no checkpoint
        self.roll = b""  # the records of its ROLL block; empty if it has a checkpoint file
        self.is_damaged = False  # its ROLL block is settled, and cannot be read
        # Sizes of older log files, as the newest ROLL block lists them; None if there is none.
        self.files: dict[int, int] | None = None


def find_start(disk: Disk, names: list[str]) -> RecoveryStart:
    """Return where a recovery of this directory starts."""
    checkpoints = numbers(names, ".checkpoint")
    start = RecoveryStart(checkpoints[-1] if checkpoints else 0)
    logs = numbers(names, ".log")
    settled = numbers(names, ".settled")
    for number in [n for n in reversed(logs) if n > start.number]:
        roll = read_roll(disk, number)
        if roll and start.files is None:
            start.files = _listed_files(roll)
        is_first = number - 1 not in logs
        if roll and (number in settled or is_first):
            start.number = number
            start.roll = roll
            return start
        if is_first:
            start.is_damaged = number in settled
            start.number = number if start.is_damaged else start.number
            return start
    return start


def read_roll(disk: Disk, number: int) -> bytes:
    """Return the records of the ROLL block that begins a log file; nothing if none is whole."""
    file = disk.open(log_name(number))
    try:
        data = file.read(HEAD_BYTES + BLOCK_HEAD_BYTES, 0)
        size = int.from_bytes(data[HEAD_BYTES : HEAD_BYTES + 4], "big")
        if len(data) < HEAD_BYTES + BLOCK_HEAD_BYTES or size > file.size():
            return b""
        data += file.read(size, len(data))
    finally:
        file.close()
    block = int.from_bytes(data[HEAD_BYTES + 8 : HEAD_BYTES + BLOCK_HEAD_BYTES], "big")
    end = block_end(data, HEAD_BYTES, block)
    at = HEAD_BYTES + BLOCK_HEAD_BYTES
    if end == 0 or not is_roll_block(data, at, end):
        return b""
    check_head(data, number, log_name(number))
    if find_roll(data, at, end).file != number:
        raise CorruptionError(f"{log_name(number)} begins with the ROLL block of another file")
    return data[at:end]


def _listed_files(records: bytes) -> dict[int, int]:
    replay = Replay()
    for kind, at, end in _records(records, 0, len(records)):
        if kind == FILES:
            replay.read(records, at, end, 0, False)
    return replay.files


def replay_roll(data: bytes, at: int, end: int, replay: Replay) -> None:
    """Replay a ROLL block that is not the start: the blocks before it say everything else."""
    for kind, first, stop in _records(data, at, end):
        if kind in _STATE:
            replay.read(data, first, stop, 0, False)


def _records(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield kind, start and end of each record."""
    while end - at >= RECORD_HEAD_BYTES:
        stop = at + RECORD_HEAD_BYTES + int.from_bytes(data[at + 1 : at + 5], "big")
        if stop > end:
            raise CorruptionError("a record is cut short")
        yield data[at], at, stop
        at = stop
