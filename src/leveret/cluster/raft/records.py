"""What a member writes to its disk, as bytes, and how that is read back.

    block    = size:u32 crc:u32 record*          one `Ready`; the checksum covers the records
    record   = kind:u8 group:u64 payload
    STATE    = term:u64 vote:u64 commit:u64
    ENTRIES  = first:u64 count:u32 entry*        replaces all from `first` on
    SNAPSHOT = index:u64 term:u64 members state_size:u32 state count:u32 live:u64*
                                                 made here; of what is before, live entries stay
    INSTALL  = size:u32 blob                     the leader's, with its live entries; replaces all

Blocks of many groups may stand in one log: a group's number is unique for each of its incarnations,
so records of one that was deleted are never taken for those of its successor. A block that is torn
at the end of a log was never synced and is cut off; one that is damaged before that raises
`Corrupt`: the member has forgotten what it promised and must be replaced, not started.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.cluster.raft.entry import (
    ENTRY_HEAD_BYTES,
    Entry,
    Members,
    read_entry,
    read_members,
    write_entry,
    write_members,
)
from leveret.cluster.raft.fields import (
    Reader,
    write_bytes,
    write_numbers,
    write_u32,
    write_u64,
)
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.snapshot import Snapshot, decode_snapshot
from leveret.cluster.raft.stored import Stored
from leveret.errors import Corrupt, SyntaxFault

STATE: Final = 1
ENTRIES: Final = 2
SNAPSHOT: Final = 3
INSTALL: Final = 4

BLOCK_HEAD_BYTES: Final = 8
_CRC_MASK: Final = 0x7FFF_FFFF  # sizes and sums alike have 31 bits


def encode_block(group: i64, ready: Ready) -> bytes:
    """The block of one `Ready`."""
    writer = BytesWriter()
    write_ready(writer, group, ready)
    records = writer.getvalue()
    block = BytesWriter()
    write_u32(block, len(records))
    write_u32(block, crc32(records) & _CRC_MASK)
    block.write(records)
    return block.getvalue()


def write_ready(writer: BytesWriter, group: i64, ready: Ready) -> None:
    """The records of one `Ready`, in the order in which they must be read back."""
    if ready.is_changed:
        _write_head(writer, STATE, group)
        write_u64(writer, ready.term)
        write_u64(writer, ready.vote)
        write_u64(writer, ready.commit)
    snapshot = ready.snapshot
    if snapshot is not None:
        if ready.is_received:
            _write_head(writer, INSTALL, group)
            write_bytes(writer, snapshot.blob())
        else:
            _write_head(writer, SNAPSHOT, group)
            _write_snapshot(writer, snapshot)
    if ready.entries:
        _write_head(writer, ENTRIES, group)
        write_u64(writer, ready.entries[0].index)
        write_u32(writer, len(ready.entries))
        for entry in ready.entries:
            write_entry(writer, entry)


def _write_head(writer: BytesWriter, kind: i64, group: i64) -> None:
    writer.append(kind)
    write_u64(writer, group)


def _write_snapshot(writer: BytesWriter, snapshot: Snapshot) -> None:
    write_u64(writer, snapshot.index)
    write_u64(writer, snapshot.term)
    write_members(writer, snapshot.members)
    write_bytes(writer, snapshot.state)
    write_numbers(writer, [int(entry.index) for entry in snapshot.live])


class Remains:
    """What is left of one group, while its records are read in order."""

    def __init__(self) -> None:
        self.term: i64 = 0
        self.vote: i64 = 0
        self.commit: i64 = 0
        self.snapshot: Snapshot | None = None
        self.first: i64 = 1  # of `entries`
        self.entries: list[Entry] = []

    def read(self, kind: i64, reader: Reader) -> None:
        if kind == STATE:
            self.term = reader.u64()
            self.vote = reader.u64()
            self.commit = reader.u64()
        elif kind == ENTRIES:
            self._read_entries(reader)
        elif kind == SNAPSHOT:
            self._read_snapshot(reader)
        elif kind == INSTALL:
            self._begin_from(decode_snapshot(reader.sized()), [])
        else:
            raise SyntaxFault(f"a record of kind {kind}")

    def _read_entries(self, reader: Reader) -> None:
        first = reader.u64()
        keep = first - self.first
        if keep < 0 or keep > len(self.entries):
            raise SyntaxFault(f"entries from {first} on, after {self.first}+{len(self.entries)}")
        del self.entries[keep:]
        for _ in range(reader.count(ENTRY_HEAD_BYTES)):
            self.entries.append(read_entry(reader, first))
            first += 1

    def _read_snapshot(self, reader: Reader) -> None:
        index = reader.u64()
        term = reader.u64()
        members = read_members(reader)
        state = reader.sized()
        kept: dict[int, Entry] = {}
        if self.snapshot is not None:
            kept = {entry.index: entry for entry in self.snapshot.live}
        live = [self._entry(number, kept) for number in reader.numbers()]
        rest = self.entries[max(i64(0), index + 1 - self.first) :]
        self._begin_from(Snapshot(index, term, members, state, live), rest)

    def _entry(self, index: i64, kept: dict[int, Entry]) -> Entry:
        """A live entry: from the log, or kept by the snapshot before."""
        if self.first <= index < self.first + len(self.entries):
            return self.entries[index - self.first]
        found = kept.get(index)
        if found is None:
            raise SyntaxFault(f"a live entry at {index} that is not there")
        return found

    def _begin_from(self, snapshot: Snapshot, entries: list[Entry]) -> None:
        self.snapshot = snapshot
        self.first = snapshot.index + 1
        self.entries = entries

    def stored(self, members: Members) -> Stored:
        """What a member begins with; `members` are those that the group began with."""
        stored = Stored(members if self.snapshot is None else self.snapshot.members)
        stored.term = self.term
        stored.vote = self.vote
        stored.snapshot = self.snapshot
        stored.entries = self.entries
        stored.commit = self.commit
        if self.commit > self.first - 1 + len(self.entries):
            raise Corrupt(f"{self.commit} entries are committed, and not all are there")
        return stored


class Recovery:
    """Reads a log back: what is left of every group in it."""

    def __init__(self) -> None:
        self.groups: dict[int, Remains] = {}
        self.torn_bytes: i64 = 0

    def remains(self, group: i64) -> Remains:
        found = self.groups.get(group)
        if found is None:
            found = Remains()
            self.groups[group] = found
        return found

    def read(self, data: bytes) -> None:
        """All blocks of a log."""
        at: i64 = 0
        while at < len(data):
            size = whole_block(data, at)
            if size == 0:
                self._require_torn(data, at)
                self.torn_bytes = len(data) - at
                return
            self._read_block(Reader(data, at + BLOCK_HEAD_BYTES, at + size))
            at += size

    def _read_block(self, reader: Reader) -> None:
        try:
            while reader.left():
                kind = reader.u8()
                self.remains(reader.u64()).read(kind, reader)
        except SyntaxFault as fault:
            raise Corrupt(f"a block whose sum is right cannot be read: {fault}") from fault

    def _require_torn(self, data: bytes, at: i64) -> None:
        """A torn write is the end of the log: nothing whole follows it."""
        for after in range(at + 1, len(data)):
            if whole_block(data, after):
                raise Corrupt(f"damage at {at}, before a whole block at {after}")


def whole_block(data: bytes, at: i64) -> i64:
    """The size of the block at `at`, with its head; 0 if there is no whole one."""
    if len(data) - at < BLOCK_HEAD_BYTES:
        return 0
    reader = Reader(data, at, len(data))
    try:
        size = reader.u32()
        crc = reader.u32()
    except SyntaxFault:
        return 0
    if size == 0 or size > reader.left():
        return 0
    is_whole = crc32(data[reader.at : reader.at + size]) & _CRC_MASK == crc
    return BLOCK_HEAD_BYTES + size if is_whole else 0
