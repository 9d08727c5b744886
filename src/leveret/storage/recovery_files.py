"""Replay the log files of a data directory, in steps, and find torn and damaged bytes in them.

Files older than the checkpoint are replayed by their indexes, without reading them. `recovery` says
which bytes are torn, which are damaged, and what a start does with them.
"""

from collections.abc import Iterator
from typing import Final

from leveret.errors import CorruptionError
from leveret.journal.cluster_records import is_roll_block
from leveret.journal.index import ENTRY_BYTES
from leveret.storage.block_search import find_block, has_later_block
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
)
from leveret.storage.checkpoint import read_whole
from leveret.storage.damage import ADVICE, examine_damage
from leveret.storage.disk import Disk
from leveret.storage.file_names import index_name, log_name, numbers
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.recovery_start import replay_roll
from leveret.storage.replay import Replay

# The work of one step takes a few milliseconds.
STEP_BYTES: Final = 1024 * 1024  # of a log file
STEP_ENTRIES: Final = 32_768  # of an index


def read_files(
    disk: Disk, names: list[str], logs: list[int], start: int, found: RecoveryResult
) -> Iterator[None]:
    """Replay all log files, the older ones by their indexes."""
    replay = found.replay
    indexed = set(numbers(names, ".index"))
    for number in sorted(found.missing.union(logs)):
        index = _read_index(disk, number) if number in indexed else None
        if index is not None and number < start:
            for at in range(0, len(index), STEP_ENTRIES * ENTRY_BYTES):
                replay.read_index(index[at : at + STEP_ENTRIES * ENTRY_BYTES], number)
                yield
            found.totals[number] = len(index) // ENTRY_BYTES
            _note_size(disk, number, replay.files.get(number, 0), found)
        elif number in found.missing:
            _note_missing(number, found)
        else:
            is_last = number == logs[-1]
            yield from _read_file(disk, number, replay, found, start, is_last=is_last)
            entries = replay.take_index()
            found.totals[number] = len(entries) // ENTRY_BYTES
            if number in found.files and not any(d.file == number for d in found.damage):
                found.indexes[number] = entries


def _note_size(disk: Disk, number: int, listed: int, found: RecoveryResult) -> None:
    """Note the size of a file that was not read. A file shorter than listed is a loss."""
    found.files[number] = listed
    if number in found.missing:
        return
    file = disk.open(log_name(number))
    size = file.size()
    file.close()
    if size < listed:
        found.losses.append(_shorter(number, listed, size))
    else:
        found.files[number] = size


def _note_missing(number: int, found: RecoveryResult) -> None:
    """Note that a file is missing, and that its messages are unknown."""
    text = f"{log_name(number)} is missing, and it has no index"
    if not found.is_repair:
        raise CorruptionError(f"{text}: {ADVICE}")
    found.losses.append(text)


def _check_size(number: int, size: int, listed: int, found: RecoveryResult) -> None:
    """Note that a file is shorter than the checkpoint says."""
    if size < listed:
        if not found.is_repair:
            raise CorruptionError(f"{_shorter(number, listed, size)}: {ADVICE}")
        found.losses.append(_shorter(number, listed, size))


def _shorter(number: int, listed: int, size: int) -> str:
    return f"{log_name(number)} had {listed} bytes, and has {size}"


def _read_index(disk: Disk, number: int) -> bytes | None:
    """Return the index of a log file; None if it is damaged, so that the file itself is read."""
    try:
        return read_whole(disk, index_name(number), number)
    except CorruptionError:
        return None


def _read_file(
    disk: Disk, number: int, replay: Replay, found: RecoveryResult, start: int, *, is_last: bool
) -> Iterator[None]:
    """Replay one log file, block by block."""
    is_old = number < start
    file = disk.open(log_name(number))
    try:
        pieces: list[bytes] = []
        for at in range(0, file.size(), STEP_BYTES):
            pieces.append(file.read(STEP_BYTES, at))
            yield
        data = b"".join(pieces)
        step_end = STEP_BYTES
        may_end = is_last and not is_old  # the end of the log may be torn
        if _has_head(data, number):
            at = HEAD_BYTES
        elif may_end and _is_torn(data, 0, found.last_block, found):
            found.cut_bytes += len(data)
            found.torn = (number, 0)
            if number == start:
                found.files[number] = HEAD_BYTES
            return
        else:
            at = 0
        last = 0 if is_old else found.last_block
        found.unsynced_from = 0
        while at < len(data):
            if at >= step_end:
                step_end = at + STEP_BYTES
                yield
            block = last + 1 if not is_old else int.from_bytes(data[at + 8 : at + 16], "big")
            end = block_end(data, at, block) if at else 0
            if end == 0:
                if may_end and _is_torn(data, at, last, found):
                    found.cut_bytes += len(data) - at
                    found.torn = (number, at)
                    break
                at, last = _record_damage(data, at, last, number, replay, found, is_old)
                continue
            if is_roll_block(data, at + BLOCK_HEAD_BYTES, end):
                if not is_old:
                    replay_roll(data, at + BLOCK_HEAD_BYTES, end, replay)
            else:
                replay.read(data, at + BLOCK_HEAD_BYTES, end, number, is_old)
            if block > found.synced_block and found.unsynced_from == 0:
                found.unsynced_from = at
            last = block
            found.last_block = found.last_block if is_old else block
            at = end
        _check_size(number, at, replay.files.get(number, 0), found)
        if at == HEAD_BYTES and may_end and number != start:
            found.torn = (number, 0)  # the file was created, and never used
            return
        if not is_old:
            file.sync()  # the killed node may not have synced what was read here
        found.files[number] = at
    finally:
        file.close()


def _is_torn(data: bytes, at: int, last: int, found: RecoveryResult) -> bool:
    """Return True if invalid bytes are a write that was never finished, and not damage."""
    return last >= found.synced_block and not has_later_block(data, at, last)


def _has_head(data: bytes, number: int) -> bool:
    """Return True if the head is whole; raise CorruptionError if it names another file."""
    try:
        check_head(data, number, log_name(number))
    except CorruptionError:
        if data[:HEAD_BYTES] == encode_head(int.from_bytes(data[12:20], "big")):
            raise
        return False
    return True


def _record_damage(
    data: bytes,
    at: int,
    last: int,
    number: int,
    replay: Replay,
    found: RecoveryResult,
    is_old: bool,
) -> tuple[int, int]:
    """Record damage; return its end, and the number of the last block before that end."""
    highest = found.last_block if is_old else last + 1 + (len(data) - at) // BLOCK_HEAD_BYTES
    stop = find_block(data, at, last, highest)
    end = stop if stop >= 0 else len(data)
    damage = examine_damage(data, number, at, end, messages_only=is_old)
    before_next = last + damage.blocks
    if stop >= 0:
        before_next = int.from_bytes(data[end + 8 : end + 16], "big") - 1
        if before_next != last + damage.blocks and not (is_old and last == 0):
            damage.is_clear = False  # some blocks are missing without a trace
    if not damage.is_clear and not found.is_repair:
        raise CorruptionError(damage.refusal())
    for queue, seq, offset in damage.messages:
        replay.queue(queue).damaged[seq] = (number, offset)
    found.damage.append(damage)
    found.live[number] = found.live.get(number, 0) + 1  # keeps the damaged file
    if not is_old:
        found.last_block = before_next
        found.has_lost_delivery_marks = True
    return end, before_next
