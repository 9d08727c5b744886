"""Snapshots: the machine's state at an index, and the entries that it still refers to.

    blob = version:u8 index:u64 term:u64 members state_size:u32 state
           count:u32 (index:u64 entry)*                          the live entries, by index

The state of a queue names its messages by index and leaves the bodies in the log. So a snapshot
lists the *live* entries: entries before its index that the state needs. They stay in the log of the
member that took the snapshot, and are sent along with it to a follower.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.entry import (
    ENTRY_HEAD_BYTES,
    Entry,
    Members,
    read_entry,
    read_members,
    write_entry,
    write_members,
)
from leveret.cluster.raft.fields import Reader, write_bytes, write_u32, write_u64
from leveret.errors import FieldSyntaxError

SNAPSHOT_VERSION: Final = 1


class Snapshot:
    """A state that replaces the first `index` entries of a log."""

    def __init__(
        self, index: i64, term: i64, members: Members, state: bytes, live: list[Entry]
    ) -> None:
        self.index: i64 = index  # the last entry that is applied in the state
        self.term: i64 = term  # term of that entry
        self.members = members  # members as of that entry
        self.state = state
        self.live = live  # ascending, all at or before `index`
        self._blob = b""

    def blob(self) -> bytes:
        """Return the encoded snapshot, made once."""
        if not self._blob:
            self._blob = encode_snapshot(self)
        return self._blob


class IncomingSnapshot:
    """A snapshot that is being received. Chunks come in order, or are requested again."""

    def __init__(self, index: i64, term: i64, total_bytes: i64) -> None:
        self.index: i64 = index
        self.term: i64 = term
        self.total_bytes: i64 = total_bytes
        self.data = bytearray()

    def is_of(self, index: i64, term: i64, total_bytes: i64) -> bool:
        return self.index == index and self.term == term and self.total_bytes == total_bytes

    def add(self, offset: i64, chunk: bytes) -> None:
        """Add a chunk if it is the next one."""
        if offset == len(self.data) and offset + len(chunk) <= self.total_bytes:
            self.data += chunk

    def is_complete(self) -> bool:
        return len(self.data) == self.total_bytes


def encode_snapshot(snapshot: Snapshot) -> bytes:
    writer = BytesWriter()
    writer.append(SNAPSHOT_VERSION)
    write_u64(writer, snapshot.index)
    write_u64(writer, snapshot.term)
    write_members(writer, snapshot.members)
    write_bytes(writer, snapshot.state)
    write_u32(writer, len(snapshot.live))
    for entry in snapshot.live:
        write_u64(writer, entry.index)
        write_entry(writer, entry)
    return writer.getvalue()


def decode_snapshot(data: bytes) -> Snapshot:
    reader = Reader(data, 0, len(data))
    version = reader.u8()
    if version != SNAPSHOT_VERSION:
        raise FieldSyntaxError(f"a snapshot of version {version}")
    index = reader.u64()
    term = reader.u64()
    members = read_members(reader)
    state = reader.sized()
    live: list[Entry] = []
    before: i64 = 0
    for _ in range(reader.count(8 + ENTRY_HEAD_BYTES)):
        at = reader.u64()
        if at <= before or at > index:
            raise FieldSyntaxError(f"a live entry at {at} after {before}, in a snapshot at {index}")
        live.append(read_entry(reader, at))
        before = at
    reader.require_end()
    return Snapshot(index, term, members, state, live)
