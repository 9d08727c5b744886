"""The records of a replicated log: ROLL, MEMBERS, and the kinds of blocks in their STAMP.

    TERM block     = STAMP NOTHING                 the first block that a leader makes in its term
    MEMBERS block  = STAMP MEMBERS                 the nodes of the cluster from this block on
    ROLL block     = STAMP ROLL record* FILES      the first block of a log file

In a replicated log a ROLL block takes the place of a checkpoint file: the records after ROLL are
those of a checkpoint. ROLL holds the number of the file that the block begins, the table of terms
from the first block of the log on, and the current members. The bytes of the members come from the
cluster, and nothing here looks into them.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from leveret.errors import CorruptionError
from leveret.journal.records import (
    MEMBERS,
    NOTHING,
    RECORD_HEAD_BYTES,
    ROLL,
    ROLL_BLOCK,
    STAMP,
    STAMP_BYTES,
    record_end,
    write_head,
)

_ROLL_HEAD_BYTES: Final = 12
_TERM_BYTES: Final = 16


class Stamp:
    """The content of a STAMP record."""

    def __init__(self, time_ms: i64, term: i64, kind: i64) -> None:
        self.time_ms: i64 = time_ms
        self.term: i64 = term
        self.kind: i64 = kind


class Roll:
    """The content of a ROLL record."""

    def __init__(self, file: i64, terms: list[tuple[int, int]], members: bytes) -> None:
        self.file: i64 = file
        self.terms = terms  # term, and the first block that has it
        self.members = members


def encode_roll(file: i64, terms: list[tuple[int, int]], members: bytes) -> bytes:
    """Return the record ROLL."""
    writer = BytesWriter()
    write_head(writer, ROLL, _ROLL_HEAD_BYTES + _TERM_BYTES * len(terms) + len(members))
    write_i64_be(writer, file)
    write_i32_be(writer, i32(len(terms)))
    for term, first_block in terms:
        write_i64_be(writer, term)
        write_i64_be(writer, first_block)
    writer.write(members)
    return writer.getvalue()


def decode_roll(payload: bytes) -> Roll:
    """Return the content of a ROLL record; raise CorruptionError if it is cut short."""
    size: i64 = len(payload)
    count: i64 = 0
    if size >= _ROLL_HEAD_BYTES:
        count = i64(read_i32_be(payload, 8)) & 0xFFFFFFFF
    if size < _ROLL_HEAD_BYTES + _TERM_BYTES * count:
        raise CorruptionError("a ROLL record is cut short")
    terms: list[tuple[int, int]] = []
    at: i64 = _ROLL_HEAD_BYTES
    for _ in range(count):
        terms.append((read_i64_be(payload, at), read_i64_be(payload, at + 8)))
        at += _TERM_BYTES
    return Roll(read_i64_be(payload, 0), terms, payload[at:])


def encode_members_record(members: bytes) -> bytes:
    """Return the record MEMBERS."""
    writer = BytesWriter()
    write_head(writer, MEMBERS, len(members))
    writer.write(members)
    return writer.getvalue()


def encode_nothing() -> bytes:
    """Return the record NOTHING."""
    writer = BytesWriter()
    write_head(writer, NOTHING, 0)
    return writer.getvalue()


def maybe_stamp(data: bytes, at: i64, end: i64) -> Stamp | None:
    """Return the STAMP that begins the records of a block; None if an old version wrote it."""
    if end - at < STAMP_BYTES or i64(data[at]) != STAMP:
        return None
    at += RECORD_HEAD_BYTES
    return Stamp(read_i64_be(data, at), read_i64_be(data, at + 8), i64(data[at + 16]))


def is_roll_block(data: bytes, at: i64, end: i64) -> bool:
    """Return True if the records of a block, from `at` to `end`, are those of a ROLL block."""
    stamp = maybe_stamp(data, at, end)
    return stamp is not None and stamp.kind == ROLL_BLOCK


def find_roll(data: bytes, at: i64, end: i64) -> Roll:
    """Return the ROLL record of a ROLL block; raise CorruptionError if it has none."""
    at = at + STAMP_BYTES
    if end - at < RECORD_HEAD_BYTES or i64(data[at]) != ROLL:
        raise CorruptionError("a ROLL block has no ROLL record")
    return decode_roll(data[at + RECORD_HEAD_BYTES : record_end(data, at, end)])
