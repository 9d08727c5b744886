"""Damage in the middle of the log: which bytes, and which queues their records belonged to.

Damaged bytes were blocks once. If their records can still be separated, they name the queues that
are affected: messages there are set aside, and acks there are lost, so that acked messages come
back. Nothing else is taken from damaged bytes, and never a body. If the records cannot be
separated, or definitions are among them, the affected queues are unknown (`is_clear` is False).
"""

from typing import Final

from leveret.checksum import crc32
from leveret.errors import LeveretError
from leveret.journal.chunks import CHUNK_HEAD_BYTES
from leveret.journal.records import (
    BLOCK,
    CAME,
    CHUNK,
    COPY,
    COPY_BYTES,
    CURSOR,
    DEFINE,
    END,
    GONE,
    KEY_BYTES,
    KEYS,
    MARK,
    MEMBERS,
    MESSAGE,
    NOTHING,
    RECORD_HEAD_BYTES,
    RETURNED,
    ROLL,
    SPILLED,
    STAMP,
    STAMP_BYTES,
    TRIM,
)
from leveret.storage.block_search import find_block
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, block_end, first_block
from leveret.storage.file_names import log_name
from leveret.wire.tables import decode_table

ADVICE: Final = "`leveret ctl repair` shows the damage and repairs it"

# Records whose loss concerns the queue, or the exchange with keys, whose number they start with.
# CAME is not one of them: without arrival times only the ages of messages are less exact.
_NAMING: Final = (GONE, RETURNED, MARK, CHUNK, TRIM, CURSOR, KEYS)
# Records of fixed size. A record of another size shows that its kind byte is damaged.
_SIZES: Final = {
    NOTHING: 0,
    END: 0,
    MARK: 16,
    TRIM: 16,
    STAMP: STAMP_BYTES - RECORD_HEAD_BYTES,
    RETURNED: 32,
    COPY: COPY_BYTES + 4,
}
_MESSAGE_BYTES_MIN: Final = COPY_BYTES + 14
_ROLL_BYTES_MIN: Final = 12
_NAME_BYTES_MAX: Final = 255  # of a cursor
_QUEUE_MAX: Final = (1 << 32) - 1  # the index stores queue numbers as u32
_SEQ_MAX: Final = 1 << 48  # more messages than a queue can ever get
_BLOCK_MAX: Final = 1 << 48  # more blocks than a log can ever get


class Damage:
    """A range of bytes in a log file that is not a valid block."""

    def __init__(self, file: int, start: int, end: int) -> None:
        self.file = file
        self.start = start
        self.end = end
        self.blocks = 0  # estimated number of blocks that stood there
        self.messages: list[tuple[int, int, int]] = []  # queue, sequence number, offset
        self.settled: set[int] = set()  # queues whose acks, returns or delivery marks stood there
        self.has_definitions = False
        self.is_clear = False  # `queues` returns every affected queue

    def queues(self) -> set[int]:
        return self.settled | {queue for queue, _, _ in self.messages}

    def place(self) -> str:
        return f"{log_name(self.file)} is damaged from byte {self.start} to {self.end}"

    def refusal(self) -> str:
        """Return the error text for a node that cannot start because of this damage."""
        return f"{self.place()}, and the affected queues are unknown: {ADVICE}"

    def reason(self, queue: int) -> str:
        """Return the text that tells a queue how the damage affects it."""
        count = sum(owner == queue for owner, _, _ in self.messages)
        text = f"{self.place()}: {count} messages were there"
        return text + (", and acks, which are lost" if queue in self.settled else "")


def examine_damage(data: bytes, file: int, start: int, end: int, *, messages_only: bool) -> Damage:
    """Find out which records stood in damaged bytes. In an old file only messages matter."""
    parts = _parts(data, start, end)
    for guess in (parts, [(parts[0][0], end)] if parts else []):
        damage = Damage(file, start, end)
        damage.blocks = len(guess)
        if all(_read(data, at, stop, damage, messages_only) for at, stop in guess):
            damage.is_clear = end > start and not damage.has_definitions
            return damage
    return Damage(file, start, end)


def _parts(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of records of each block, as far as block sizes can be read."""
    at = HEAD_BYTES if start == 0 else start
    parts: list[tuple[int, int]] = []
    while at < end:
        records = at + BLOCK_HEAD_BYTES
        size = int.from_bytes(data[at : at + 4], "big")
        stop = records + size
        if size == 0 or stop > end:
            stop = end
        parts.append((records, stop))
        at = stop
    return parts


def _read(data: bytes, at: int, end: int, damage: Damage, messages_only: bool) -> bool:
    """Note what the records of a block concern; return False if they make no sense."""
    if at >= end or data[at:end] == bytes(end - at):  # zeros look like empty records
        return False
    at = _skip_stamp(data, at)
    if at >= end:
        return False
    while at < end:
        kind = data[at]
        size = int.from_bytes(data[at + 1 : at + RECORD_HEAD_BYTES], "big")
        start = at + RECORD_HEAD_BYTES
        if end - at < RECORD_HEAD_BYTES or size > end - start or not _is_size(kind, size):
            return False
        if kind in (MESSAGE, COPY):
            if not _note_message(data, start, at, damage):
                return False
        elif kind in _NAMING:
            if not _is_sound(data, kind, start, size):
                return False
            if not _note_settled(data, start, damage, messages_only):
                return False
        elif kind in (DEFINE, ROLL, MEMBERS):
            damage.has_definitions = damage.has_definitions or not messages_only
        at = start + size
    return True


def _skip_stamp(data: bytes, at: int) -> int:
    """Return the end of the STAMP at the start of a block, even if its kind or size is damaged."""
    size = int.from_bytes(data[at + 1 : at + RECORD_HEAD_BYTES], "big")
    is_kind = data[at : at + 1] == bytes((STAMP,))
    is_stamp = is_kind or (size == _SIZES[STAMP] and not _is_size(data[at], size))
    return at + STAMP_BYTES if is_stamp else at


def _is_size(kind: int, size: int) -> bool:
    """Return True if a log file can hold a record of this kind and size."""
    if kind == MESSAGE:
        return size >= _MESSAGE_BYTES_MIN
    if kind in (GONE, CAME):
        return size >= 24 and size % 16 == 8
    if kind == CHUNK:
        return size >= 8 + CHUNK_HEAD_BYTES
    if kind == CURSOR:
        return 16 < size <= 16 + _NAME_BYTES_MAX
    if kind == KEYS:
        return size >= 12 and (size - 12) % KEY_BYTES == 0
    if kind == ROLL:
        return size >= _ROLL_BYTES_MIN
    return kind in (DEFINE, MEMBERS) or _SIZES.get(kind) == size


def _is_sound(data: bytes, kind: int, start: int, size: int) -> bool:
    """Return True if the content fits the kind of the record. The kind byte may be damaged."""
    if kind == CHUNK:
        chunk = int.from_bytes(data[start + 8 : start + 12], "little")
        return chunk == size - 8 - CHUNK_HEAD_BYTES
    if kind == CURSOR:
        return data[start + 16 : start + size].decode("utf-8", "replace").isprintable()
    if kind == KEYS:
        return int.from_bytes(data[start + 8 : start + 12], "big") == (size - 12) // KEY_BYTES
    if kind == GONE:
        numbers = range(start + 8, start + size, 8)
        return all(int.from_bytes(data[at : at + 8], "big") <= _SEQ_MAX for at in numbers)
    return True


def _note_message(data: bytes, start: int, offset: int, damage: Damage) -> bool:
    queue = int.from_bytes(data[start : start + 8], "big")
    seq = int.from_bytes(data[start + 8 : start + 16], "big")
    if queue > _QUEUE_MAX or seq > _SEQ_MAX:
        return False
    if queue != SPILLED:
        damage.messages.append((queue, seq, offset))
    return True


def _note_settled(data: bytes, start: int, damage: Damage, messages_only: bool) -> bool:
    queue = int.from_bytes(data[start : start + 8], "big")
    if not 0 < queue <= _QUEUE_MAX:
        return False
    if not messages_only:
        damage.settled.add(queue)
    return True


def salvage_definitions(checkpoint: bytes, log: bytes) -> bytes:
    """Return the readable definitions of a damaged checkpoint, as records.

    Its settled messages are ignored, because a damaged number there would lose other messages. The
    last block before the checkpoint is the one before the first block of `log`.
    """
    last_block = first_block(log) - 1
    head = bytes((BLOCK,)) + (8).to_bytes(4, "big")
    kept = [head + max(0, last_block).to_bytes(8, "big")]
    at = HEAD_BYTES + BLOCK_HEAD_BYTES
    while at + RECORD_HEAD_BYTES <= len(checkpoint):
        start = at + RECORD_HEAD_BYTES
        stop = start + int.from_bytes(checkpoint[at + 1 : start], "big")
        if stop > len(checkpoint):
            break
        if checkpoint[at] == DEFINE and _is_table(checkpoint, start, stop):
            kept.append(checkpoint[at:stop])
        at = stop
    return b"".join(kept)


def _is_table(data: bytes, start: int, stop: int) -> bool:
    if stop - start < 4:
        return False
    try:
        decode_table(data, start + 4, stop)
    except LeveretError:
        return False
    return True


def find_damaged_ranges(data: bytes) -> list[tuple[int, int]]:
    """Return all ranges of a log file that are not a valid block."""
    found: list[tuple[int, int]] = []
    at = HEAD_BYTES
    if len(data) < HEAD_BYTES or crc32(data[:20]) != int.from_bytes(data[20:24], "big"):
        at = 0
    last = 0
    while at < len(data):
        number = int.from_bytes(data[at + 8 : at + 16], "big")
        end = block_end(data, at, number) if at and number > last else 0
        if end == 0:
            stop = find_block(data, at, last, _BLOCK_MAX)
            end = stop if stop >= 0 else len(data)
            found.append((at, end))
        else:
            last = number
        at = end
    return found
