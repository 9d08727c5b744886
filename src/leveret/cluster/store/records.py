"""The records of a block.

    record         = kind:u8 group:u64 payload
    1 STATE          = term:u64 vote:u64 commit:u64
    2 ENTRIES        = first:u64 count:u32 entry*          replaces all from `first` on
    3 SNAPSHOT       = snapshot                            live entries before it stay
    4 INSTALL        = snapshot entry*                     the leader's and its live entries;
                                                           replaces everything
    5 CREATE         = members                             the group begins with these members
    6 DELETE         =                                     the group is deleted
    7 MOVED          = index:u64 entry                     the new position of the entry
    8 MOVED_SNAPSHOT = snapshot                            the new position of the snapshot
    9 CHECKPOINT       see `checkpoint`; the first record of a file, and nowhere else

    snapshot = index:u64 term:u64 members state_size:u32 state count:u32 live:u64*

Reading finds the positions of entries without decoding them.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.entry import (
    ENTRY_HEAD_BYTES,
    Entry,
    Members,
    read_members,
    write_entry,
    write_members,
)
from leveret.cluster.raft.fields import Reader, write_bytes, write_numbers, write_u32, write_u64
from leveret.cluster.raft.snapshot import Snapshot
from leveret.errors import FieldSyntaxError

STATE: Final = 1
ENTRIES: Final = 2
SNAPSHOT: Final = 3
INSTALL: Final = 4
CREATE: Final = 5
DELETE: Final = 6
MOVED: Final = 7
MOVED_SNAPSHOT: Final = 8
CHECKPOINT: Final = 9

_TERM_AND_KIND_BYTES: Final = 9  # of an entry, before its size


def write_head(writer: BytesWriter, kind: i64, group: i64) -> None:
    writer.append(kind)
    write_u64(writer, group)


def write_state(writer: BytesWriter, group: i64, term: i64, vote: i64, commit: i64) -> None:
    write_head(writer, STATE, group)
    write_u64(writer, term)
    write_u64(writer, vote)
    write_u64(writer, commit)


def write_create(writer: BytesWriter, group: i64, members: Members) -> None:
    write_head(writer, CREATE, group)
    write_members(writer, members)


def write_moved(writer: BytesWriter, group: i64, index: i64) -> None:
    """The record up to its entry."""
    write_head(writer, MOVED, group)
    write_u64(writer, index)


def write_entries(writer: BytesWriter, group: i64, first: i64, count: i64) -> None:
    """The record up to its entries."""
    write_head(writer, ENTRIES, group)
    write_u64(writer, first)
    write_u32(writer, count)


def write_snapshot(writer: BytesWriter, snapshot: Snapshot) -> None:
    """A snapshot without its entries."""
    write_u64(writer, snapshot.index)
    write_u64(writer, snapshot.term)
    write_members(writer, snapshot.members)
    write_bytes(writer, snapshot.state)
    write_numbers(writer, [int(entry.index) for entry in snapshot.live])


def read_snapshot(reader: Reader) -> tuple[Snapshot, list[int]]:
    """A snapshot, its entries yet to be filled in, and their indexes."""
    index = reader.u64()
    term = reader.u64()
    members = read_members(reader)
    state = reader.sized()
    entries: list[Entry] = []
    return Snapshot(index, term, members, state, entries), reader.numbers()


class Record:
    """One record, as far as it matters for finding things again."""

    def __init__(self, kind: i64, group: i64) -> None:
        self.kind: i64 = kind
        self.group: i64 = group
        # STATE
        self.term: i64 = 0
        self.vote: i64 = 0
        self.commit: i64 = 0
        # CREATE
        self.members: Members | None = None
        # SNAPSHOT, INSTALL, MOVED_SNAPSHOT: of the snapshot; ENTRIES, MOVED: of the first entry
        self.index: i64 = 0
        # Where the snapshot stands in the data, and its size; 0: none
        self.at: i64 = 0
        self.size: i64 = 0
        self.live: list[int] = []
        # The entries in it
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def number(self, place: i64) -> i64:
        """The index of an entry in it."""
        if self.kind == INSTALL:
            return self.live[place]
        return self.index + place


def read_record(reader: Reader) -> Record:
    """The next record; the reader is behind it then. Not for CHECKPOINT."""
    kind = reader.u8()
    record = Record(kind, reader.u64())
    if kind == ENTRIES:
        record.index = reader.u64()
        _read_places(reader, record, reader.count(ENTRY_HEAD_BYTES))
    elif kind == STATE:
        record.term = reader.u64()
        record.vote = reader.u64()
        record.commit = reader.u64()
    elif kind == SNAPSHOT or kind == MOVED_SNAPSHOT:
        _read_outline(reader, record)
    elif kind == INSTALL:
        _read_outline(reader, record)
        _read_places(reader, record, len(record.live))
    elif kind == MOVED:
        record.index = reader.u64()
        _read_places(reader, record, 1)
    elif kind == CREATE:
        record.members = read_members(reader)
    elif kind != DELETE:
        raise FieldSyntaxError(f"a record of kind {kind}")
    return record


def _read_outline(reader: Reader, record: Record) -> None:
    record.at = reader.at
    record.index = reader.u64()
    reader.u64()
    read_members(reader)
    reader.skip(reader.u32())
    record.live = reader.numbers()
    record.size = reader.at - record.at


def _read_places(reader: Reader, record: Record, count: i64) -> None:
    for _ in range(count):
        at = reader.at
        reader.skip(_TERM_AND_KIND_BYTES)
        reader.skip(reader.u32())
        record.offsets.append(at)
        record.sizes.append(reader.at - at)


def write_install(writer: BytesWriter, group: i64, snapshot: Snapshot) -> tuple[i64, i64]:
    """A snapshot of the leader with its entries; where the snapshot stands, and its size."""
    write_head(writer, INSTALL, group)
    at: i64 = len(writer)
    write_snapshot(writer, snapshot)
    size: i64 = len(writer) - at
    for entry in snapshot.live:
        write_entry(writer, entry)
    return at, size
