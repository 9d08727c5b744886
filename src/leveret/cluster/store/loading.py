"""Reads entries and snapshots back from the positions in the index.

Entries that stand near each other are read together. The checksums of all referenced bytes were
verified when the store was opened; bytes of an unexpected form are damage.
"""

from array import array
from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.entry import Entry, read_entry
from leveret.cluster.raft.fields import Reader
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.files import Files
from leveret.cluster.store.group import Group
from leveret.cluster.store.places import file_of, offset_of
from leveret.cluster.store.records import read_snapshot
from leveret.errors import CorruptionError, FieldSyntaxError

# Bytes between two entries that are read to save a call, and bytes read at once.
GAP_BYTES_MAX: Final = 4096
SPAN_BYTES_MAX: Final = 1024 * 1024


def load(files: Files, number: i64, group: Group) -> Stored:
    """What a member of this group begins with."""
    try:
        snapshot = load_snapshot(files, group)
        stored = Stored(group.members if snapshot is None else snapshot.members)
        indexes = array("q", range(group.first, group.last() + 1))
        stored.entries = load_entries(files, indexes, group.at, group.size)
    except FieldSyntaxError as fault:
        raise CorruptionError(f"group {number} cannot be read: {fault}") from fault
    stored.snapshot = snapshot
    stored.term = group.term
    stored.vote = group.vote
    stored.commit = group.commit
    if group.commit > group.last():
        raise CorruptionError(
            f"group {number}: {group.commit} entries are committed, and not all there"
        )
    return stored


def load_snapshot(files: Files, group: Group) -> Snapshot | None:
    if group.snapshot_size == 0:
        return None
    at = group.snapshot_at
    data = files.read(file_of(at), offset_of(at), group.snapshot_size)
    reader = Reader(data, 0, len(data))
    snapshot, _ = read_snapshot(reader)
    reader.require_end()
    if snapshot.index != group.snapshot_index:
        raise FieldSyntaxError(f"a snapshot at {snapshot.index} instead of {group.snapshot_index}")
    snapshot.live = load_entries(files, group.kept, group.kept_at, group.kept_size)
    return snapshot


def load_entries(
    files: Files, indexes: "array[int]", ats: "array[int]", sizes: "array[int]"
) -> list[Entry]:
    entries: list[Entry] = []
    begin: i64 = 0
    while begin < len(ats):
        end = _span_end(ats, sizes, begin)
        start = i64(ats[begin])
        size = i64(ats[end - 1]) + i64(sizes[end - 1]) - start
        data = files.read(file_of(start), offset_of(start), size)
        for here in range(begin, end):
            at = i64(ats[here]) - start
            entries.append(_entry(data, at, sizes[here], indexes[here]))
        begin = end
    return entries


def _span_end(ats: "array[int]", sizes: "array[int]", begin: i64) -> i64:
    """Up to where entries are read together."""
    end = begin + 1
    start = i64(ats[begin])
    beside = start + i64(sizes[begin])
    while end < len(ats):
        at = i64(ats[end])
        after = at + i64(sizes[end])
        # Places of another file are far away, so this holds within one file only.
        if at < beside or at - beside > GAP_BYTES_MAX or after - start > SPAN_BYTES_MAX:
            break
        beside = after
        end += 1
    return end


def _entry(data: bytes, at: i64, size: i64, index: i64) -> Entry:
    if at + size > len(data):
        raise FieldSyntaxError(f"entry {index} is cut short")
    reader = Reader(data, at, at + size)
    entry = read_entry(reader, index)
    reader.require_end()
    return entry
