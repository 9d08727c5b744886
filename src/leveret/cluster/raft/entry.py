"""Entries of the log, and the members of a group, as values and as bytes.

    entry    = term:u64 kind:u8 size:u32 data        the index follows from the position
    members  = voters non_voters                      each: count:u32 node:u64*

An entry never changes once it is made, so logs, messages and snapshots share it. A new leader
writes an empty entry, to have an entry of its own term to commit.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader, write_numbers, write_u32, write_u64
from leveret.errors import FieldSyntaxError

NOBODY: Final = 0  # no member has this number

# Kinds of entries.
EMPTY: Final = 0
COMMAND: Final = 1
CONFIG: Final = 2  # the data is the members from this entry on

ENTRY_HEAD_BYTES: Final = 13
MEMBERS_MAX: Final = 64


class Entry:
    """One entry of the log."""

    def __init__(self, index: i64, term: i64, kind: i64, data: bytes) -> None:
        self.index: i64 = index
        self.term: i64 = term
        self.kind: i64 = kind
        self.data = data

    def size_bytes(self) -> i64:
        """Return the size in a message or on disk."""
        return ENTRY_HEAD_BYTES + len(self.data)


class Members:
    """The members of a group. Non-voters receive the log but do not vote. No node is both."""

    def __init__(self, voters: list[int], non_voters: list[int]) -> None:
        self.voters = voters
        self.non_voters = non_voters

    def quorum(self) -> i64:
        """Return the number of voters in a majority."""
        return len(self.voters) // 2 + 1

    def has(self, node: i64) -> bool:
        return int(node) in self.voters or int(node) in self.non_voters

    def is_voter(self, node: i64) -> bool:
        return int(node) in self.voters

    def everyone(self) -> list[int]:
        return self.voters + self.non_voters


def write_entry(writer: BytesWriter, entry: Entry) -> None:
    data = entry.data
    write_u64(writer, entry.term)
    writer.append(entry.kind)
    write_u32(writer, len(data))
    writer.write(data)


def read_entry(reader: Reader, index: i64) -> Entry:
    term = reader.u64()
    kind = reader.u8()
    if kind > CONFIG:
        raise FieldSyntaxError(f"an entry of kind {kind}")
    entry = Entry(index, term, kind, reader.raw(reader.u32()))
    if kind == CONFIG:
        decode_members(entry.data)  # check the data now: later code relies on it
    return entry


def write_members(writer: BytesWriter, members: Members) -> None:
    write_numbers(writer, members.voters)
    write_numbers(writer, members.non_voters)


def read_members(reader: Reader) -> Members:
    voters = reader.numbers()
    non_voters = reader.numbers()
    everyone = voters + non_voters
    if len(everyone) > MEMBERS_MAX:
        raise FieldSyntaxError(f"{len(everyone)} members, more than {MEMBERS_MAX}")
    if len(set(everyone)) != len(everyone) or NOBODY in everyone:
        raise FieldSyntaxError("a member that is named twice, or nobody")
    return Members(voters, non_voters)


def encode_members(members: Members) -> bytes:
    writer = BytesWriter()
    write_members(writer, members)
    return writer.getvalue()


def decode_members(data: bytes) -> Members:
    reader = Reader(data, 0, len(data))
    members = read_members(reader)
    reader.require_end()
    return members
