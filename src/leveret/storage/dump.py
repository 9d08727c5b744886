"""Prints the content of data directory files as readable lines, including damage.

`dump` takes the bytes of a file and yields an `Entry` for its head, each block, each record, and
each damaged range. The last entry gives the end of the file and the number of damaged bytes. Damage
raises no error: readable records in damaged bytes are shown as doubtful.

To support another kind of file, add it to `FILE_KINDS`; another kind of record goes to `RECORDS`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Final

from leveret.engine.streams.chunk import chunk_bytes, read_chunk
from leveret.errors import LeveretError
from leveret.journal.chunks import CHUNK_HEAD_BYTES
from leveret.journal.cluster_records import decode_roll
from leveret.journal.index import ENTRY_BYTES
from leveret.journal.records import (
    BLOCK,
    CAME,
    CHUNK,
    COPY,
    COPY_BYTES,
    CURSOR,
    DEFINE,
    END,
    FILES,
    GONE,
    KEYS,
    MARK,
    MEMBERS,
    MESSAGE,
    NOTHING,
    RECORD_HEAD_BYTES,
    RETURNED,
    ROLL,
    STAMP,
    STREAM,
    TRIM,
)
from leveret.storage.block_search import find_block
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, MAGIC, block_end, check_head
from leveret.storage.file_names import SYNCED
from leveret.storage.message_records import CopyFields, make_message
from leveret.wire.tables import decode_table, plain_table

Fields = dict[str, object]
UNKNOWN: Final = "unknown"  # the kind of the only entry of a file that is not Leveret's
_ANY_BLOCK: Final = 1 << 62
_RUNS_SHOWN: Final = 8  # of a record that names many

_COPY: Final = Struct(">QQQQiB")
_GONE_RUN: Final = Struct(">QQ")
_RETURNED: Final = Struct(">QQIIQ")
_INDEX: Final = Struct(">IIQiIQ")
_STREAM: Final = Struct(">7Q")
_CURSOR: Final = Struct(">Qq")
_STAMP: Final = Struct(">QQB")
_TAKEN_OUT: Final = re.compile(r".*\.damaged-([0-9]+)")
_SET_ASIDE: Final = re.compile(r"(.*)\.unexplained-([0-9]+)\+*")
_FAULTS: Final = (LeveretError, error, IndexError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of a file: the head, a block, a record or a damaged range."""

    offset: int
    kind: str  # head, block, damage, eof, unknown, or the kind of a record
    fields: Fields = field(default_factory=dict)

    def line(self) -> str:
        shown = " ".join(f"{name}={_shown_value(value)}" for name, value in self.fields.items())
        return f"{self.offset:>10}  {self.kind:<8}  {shown}".rstrip()


def dump(data: bytes, name: str, *, bodies: bool = False) -> Iterator[Entry]:
    """Yield every element of a file. The name decides the format."""
    taken_out = _TAKEN_OUT.fullmatch(name)
    if taken_out is not None:
        yield from _taken_out(data, int(taken_out[1]), bodies)
        return
    set_aside = _SET_ASIDE.fullmatch(name)
    if set_aside is not None and set_aside[2] != "0":
        yield from _chunks(data, 0, int(set_aside[2]))
        return
    if set_aside is not None:
        name = set_aside[1]
    for ending, read in FILE_KINDS.items():
        if name.endswith(ending):
            yield from read(data, bodies)
            return
    fault = f"not a file that dump can read: names of those end in {', '.join(FILE_KINDS)}"
    yield Entry(0, UNKNOWN, {"fault": fault})


def _blocks(data: bytes, bodies: bool) -> Iterator[Entry]:
    """Dump a log file or a checkpoint: a head, then blocks of records."""
    yield from _file(data, bodies, _records)


def _index(data: bytes, bodies: bool) -> Iterator[Entry]:
    yield from _file(data, bodies, _index_entries)


def _segment(data: bytes, bodies: bool) -> Iterator[Entry]:
    """Dump the chunks of a stream segment."""
    yield _head(data)
    yield from _chunks(data, HEAD_BYTES, 0)


def _chunks(data: bytes, at: int, offset: int) -> Iterator[Entry]:
    """Dump chunks. The bytes stood at `offset` in their segment."""
    while at < len(data):
        size = chunk_bytes(data[at : at + CHUNK_HEAD_BYTES])
        try:
            yield Entry(offset + at, "chunk", _chunk(data[at:]))
        except _FAULTS as fault:
            yield Entry(offset + at, "damage", {"size": len(data) - at, "fault": str(fault)})
            if size == 0:
                break
        at += size
    yield Entry(offset + len(data), "eof")


Inside = Callable[[bytes, int, int, bool], Iterator[Entry]]


def _file(data: bytes, bodies: bool, inside: Inside) -> Iterator[Entry]:
    if data[:8] != MAGIC and find_block(data, HEAD_BYTES, -1, _ANY_BLOCK) < 0:
        fault = "not a file of a data directory: it has neither a head nor a whole block"
        yield Entry(0, UNKNOWN, {"fault": fault})
        return
    yield _head(data)
    at = HEAD_BYTES
    last = -1  # number of the previous block
    damaged = 0
    while at < len(data):
        number = int.from_bytes(data[at + 8 : at + BLOCK_HEAD_BYTES], "big")
        end = block_end(data, at, number) if number > last else 0
        if end:
            last = number
            yield Entry(at, "block", {"number": number, "size": end - at - BLOCK_HEAD_BYTES})
            yield from inside(data, at + BLOCK_HEAD_BYTES, end, bodies)
        else:
            found = find_block(data, at, last, _ANY_BLOCK)
            end = found if found >= 0 else len(data)
            damaged += end - at
            yield Entry(at, "damage", {"size": end - at, "fault": _fault_of(data, at, end, last)})
            for entry in inside(data, at + BLOCK_HEAD_BYTES, end, bodies):
                yield Entry(entry.offset, entry.kind, {**entry.fields, "doubtful": True})
        at = end
    yield Entry(len(data), "eof", {"damaged_bytes": damaged})


def _taken_out(data: bytes, offset: int, bodies: bool) -> Iterator[Entry]:
    """Dump bytes that a repair took out of a log file, with their original offsets."""
    yield Entry(offset, "damage", {"size": len(data), "fault": _fault_of(data, 0, len(data), -1)})
    for entry in _records(data, BLOCK_HEAD_BYTES, len(data), bodies):
        yield Entry(offset + entry.offset, entry.kind, {**entry.fields, "doubtful": True})


def _head(data: bytes) -> Entry:
    fields: Fields = {
        "version": int.from_bytes(data[8:12], "big"),
        "file": int.from_bytes(data[12:20], "big"),
    }
    try:
        check_head(data, int.from_bytes(data[12:20], "big"), "it")
    except LeveretError as fault:
        fields["fault"] = str(fault)
    return Entry(0, "head", fields)


def _fault_of(data: bytes, at: int, end: int, last: int) -> str:
    """Return why these bytes are not a valid block."""
    if end - at < BLOCK_HEAD_BYTES:
        return "too short for a block"
    size = int.from_bytes(data[at : at + 4], "big")
    if size == 0 or at + BLOCK_HEAD_BYTES + size > len(data):
        return f"a block of {size} bytes does not fit"
    number = int.from_bytes(data[at + 8 : at + BLOCK_HEAD_BYTES], "big")
    return "the block is out of order" if 0 <= number <= last else "the checksum is wrong"


def _records(data: bytes, at: int, end: int, bodies: bool) -> Iterator[Entry]:
    while at < end:
        size = int.from_bytes(data[at + 1 : at + RECORD_HEAD_BYTES], "big")
        stop = at + RECORD_HEAD_BYTES + size
        if end - at < RECORD_HEAD_BYTES or stop > end:
            yield Entry(at, "waste", {"size": end - at, "fault": "incomplete record"})
            return
        yield _record(data[at:stop], at, bodies)
        at = stop


def _record(record: bytes, offset: int, bodies: bool) -> Entry:
    kind, read = RECORDS.get(record[0], (f"kind {record[0]}", _unknown))
    payload = record[RECORD_HEAD_BYTES:]
    try:
        fields = read(payload)
        if bodies and record[0] == MESSAGE:
            fields["body"] = make_message(CopyFields(payload), payload).body
    except _FAULTS as fault:
        fields = {"size": len(payload), "fault": str(fault) or "cannot be read"}
    return Entry(offset, kind, fields)


def _unknown(payload: bytes) -> Fields:
    return {"size": len(payload)}


def _copy(payload: bytes) -> Fields:
    names = ("queue", "seq", "expires_ms", "due_ms", "priority", "flags")
    fields = dict(zip(names, _COPY.unpack_from(payload), strict=True))
    kept = ("queue", "seq", "flags")
    return {name: value for name, value in fields.items() if value or name in kept}


def _message(payload: bytes) -> Fields:
    fields = _copy(payload)
    message = make_message(CopyFields(payload), payload)
    fields["exchange"] = message.address.exchange
    fields["routing_key"] = message.address.routing_key
    fields["header_bytes"] = len(message.header)
    fields["body_bytes"] = len(message.body)
    return fields


def _message_copy(payload: bytes) -> Fields:
    distance = int.from_bytes(payload[COPY_BYTES : COPY_BYTES + 4], "big")
    return {**_copy(payload), "distance": distance}


def _gone_fields(payload: bytes) -> Fields:
    whole = len(payload) - (len(payload) - 8) % _GONE_RUN.size
    runs = [f"{first}-{last}" for first, last in _GONE_RUN.iter_unpack(payload[8:whole])]
    shown = ",".join(runs[:_RUNS_SHOWN]) + ("…" if len(runs) > _RUNS_SHOWN else "")
    return {"queue": int.from_bytes(payload[:8], "big"), "runs": len(runs), "gone": shown}


def _came(payload: bytes) -> Fields:
    whole = len(payload) - (len(payload) - 8) % _GONE_RUN.size
    marks = [f"{seq}@{time_ms}" for seq, time_ms in _GONE_RUN.iter_unpack(payload[8:whole])]
    return {"queue": int.from_bytes(payload[:8], "big"), "came": ",".join(marks)}


def _returned(payload: bytes) -> Fields:
    names = ("queue", "seq", "returns", "failures", "due_ms")
    return dict(zip(names, _RETURNED.unpack_from(payload), strict=True))


def _mark(payload: bytes) -> Fields:
    delivered = int.from_bytes(payload[8:16], "big", signed=True)
    return {"queue": int.from_bytes(payload[:8], "big"), "delivered": delivered}


def _define(payload: bytes) -> Fields:
    return plain_table(decode_table(payload, 4, len(payload)))


def _number(payload: bytes) -> Fields:
    return {"number": int.from_bytes(payload[:8], "big")}


def _nothing(payload: bytes) -> Fields:
    return {}


def _stream_chunk(payload: bytes) -> Fields:
    return {"stream": int.from_bytes(payload[:8], "big"), **_chunk(payload[8:])}


def _chunk(data: bytes) -> Fields:
    chunk = read_chunk(data, 0, 0)
    fields: Fields = {"first_offset": chunk.first_offset, "count": chunk.count}
    return {**fields, "first_ms": chunk.first_ms, "last_ms": chunk.last_ms, "size": chunk.size()}


def _stream(payload: bytes) -> Fields:
    names = ("stream", "first_offset", "segment", "at", "began_ms", "next_offset", "last_ms")
    return dict(zip(names, _STREAM.unpack_from(payload), strict=True))


def _cursor(payload: bytes) -> Fields:
    stream, offset = _CURSOR.unpack_from(payload)
    return {"stream": stream, "offset": offset, "name": payload[16:].decode("utf-8", "replace")}


def _trim(payload: bytes) -> Fields:
    return dict(zip(("stream", "first_offset"), _GONE_RUN.unpack_from(payload), strict=True))


def _keys_fields(payload: bytes) -> Fields:
    return {
        "owner": int.from_bytes(payload[:8], "big"),
        "count": int.from_bytes(payload[8:12], "big"),
    }


def _files(payload: bytes) -> Fields:
    found = [f"{file}:{size}" for file, size in _GONE_RUN.iter_unpack(payload)]
    return {"files": len(found), "sizes": ",".join(found)}


def _stamp(payload: bytes) -> Fields:
    names = ("time_ms", "term", "kind")
    return dict(zip(names, _STAMP.unpack_from(payload), strict=True))


def _roll(payload: bytes) -> Fields:
    roll = decode_roll(payload)
    terms = ",".join(f"{term}@{block}" for term, block in roll.terms)
    return {"file": roll.file, "terms": terms, "members_bytes": len(roll.members)}


def _members(payload: bytes) -> Fields:
    return {"members_bytes": len(payload)}


def _index_entries(data: bytes, at: int, end: int, bodies: bool) -> Iterator[Entry]:
    while end - at >= ENTRY_BYTES:
        names = ("queue", "at", "seq", "priority", "body_bytes", "due_ms")
        yield Entry(at, "entry", dict(zip(names, _INDEX.unpack_from(data, at), strict=True)))
        at += ENTRY_BYTES
    if at < end:
        yield Entry(at, "waste", {"size": end - at})


Read = Callable[[bytes], Fields]
RECORDS: Final[dict[int, tuple[str, Read]]] = {
    NOTHING: ("nothing", _nothing),
    MESSAGE: ("message", _message),
    COPY: ("copy", _message_copy),
    GONE: ("gone", _gone_fields),
    RETURNED: ("returned", _returned),
    MARK: ("mark", _mark),
    CAME: ("came", _came),
    DEFINE: ("define", _define),
    BLOCK: ("blocks", _number),
    END: ("end", _nothing),
    CHUNK: ("chunk", _stream_chunk),
    STREAM: ("stream", _stream),
    CURSOR: ("cursor", _cursor),
    TRIM: ("trim", _trim),
    KEYS: ("keys", _keys_fields),
    FILES: ("files", _files),
    STAMP: ("stamp", _stamp),
    ROLL: ("roll", _roll),
    MEMBERS: ("members", _members),
}
FILE_KINDS: Final[dict[str, Callable[[bytes, bool], Iterator[Entry]]]] = {
    ".log": _blocks,
    ".checkpoint": _blocks,
    ".index": _index,
    SYNCED: _blocks,
    ".segment": _segment,
}


def _shown_value(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if not value or not value.isprintable() or " " in value else value
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
