"""The whole index as one record, with which each file of the log begins.

    checkpoint = kind:u8 group:u64=0 size:u32 files groups
    files      = count:u32 (file:u64 size:u64)*                           all before this one
    groups     = count:u32 (group:u64 members term:u64 vote:u64 commit:u64
                            snapshot:u64 at:u64 size:u64 first:u64 stretches kept)*
    stretches  = total:u32 (at:u64 count:u32 size:u32*)*                  adjacent entries
    kept       = count:u32 (index:u64 at:u64 size:u32)*

It points to entries and snapshots and does not repeat them. A file that it names may be gone when
it is read, if later records have dropped all references to it.
"""

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.entry import read_members, write_members
from leveret.cluster.raft.fields import Reader, patch_u32, write_u32, write_u64
from leveret.cluster.store.group import Group
from leveret.cluster.store.index import Index
from leveret.cluster.store.places import file_of
from leveret.cluster.store.records import CHECKPOINT, write_head
from leveret.errors import CorruptionError, FieldSyntaxError


def write_checkpoint(writer: BytesWriter, index: Index) -> None:
    write_head(writer, CHECKPOINT, 0)
    begin = i64(len(writer))
    write_u32(writer, 0)
    write_u32(writer, len(index.space.size))
    for file, size in index.space.size.items():
        write_u64(writer, file)
        write_u64(writer, size)
    write_u32(writer, len(index.groups))
    for number, group in index.groups.items():
        write_u64(writer, number)
        _write_group(writer, group)
    patch_u32(writer, begin, len(writer) - begin - 4)


def _write_group(writer: BytesWriter, group: Group) -> None:
    write_members(writer, group.members)
    write_u64(writer, group.term)
    write_u64(writer, group.vote)
    write_u64(writer, group.commit)
    write_u64(writer, group.snapshot_index)
    write_u64(writer, group.snapshot_at)
    write_u64(writer, group.snapshot_size)
    write_u64(writer, group.first)
    write_u32(writer, len(group.at))
    begin: i64 = 0
    while begin < len(group.at):
        begin = _write_stretch(writer, group, begin)
    write_u32(writer, len(group.kept))
    for here in range(len(group.kept)):
        write_u64(writer, group.kept[here])
        write_u64(writer, group.kept_at[here])
        write_u32(writer, group.kept_size[here])


def _write_stretch(writer: BytesWriter, group: Group, begin: i64) -> i64:
    """Entries that stand side by side; where the next ones begin."""
    end = begin + 1
    beside = i64(group.at[begin]) + i64(group.size[begin])
    while end < len(group.at) and group.at[end] == beside:
        beside += i64(group.size[end])
        end += 1
    write_u64(writer, group.at[begin])
    write_u32(writer, end - begin)
    for here in range(begin, end):
        write_u32(writer, group.size[here])
    return end


def read_checkpoint(reader: Reader) -> Index:
    """The index of a checkpoint; the reader is behind it then."""
    index = Index()
    try:
        if reader.u8() != CHECKPOINT or reader.u64() != 0:
            raise FieldSyntaxError("a file that begins without a checkpoint")
        reader.u32()
        for _ in range(reader.count(16)):
            file = reader.u64()
            index.space.add_file(file, reader.u64())
        for _ in range(reader.count(8)):
            number = reader.u64()
            index.create(number, _read_group(reader, index))
    except FieldSyntaxError as fault:
        raise CorruptionError(f"a checkpoint whose sum is right cannot be read: {fault}") from fault
    return index


def _read_group(reader: Reader, index: Index) -> Group:
    group = Group(read_members(reader))
    group.term = reader.u64()
    group.vote = reader.u64()
    group.commit = reader.u64()
    group.snapshot_index = reader.u64()
    at = reader.u64()
    size = reader.u64()
    if size:
        group.move_snapshot(at, size, index.space)
    group.first = reader.u64()
    total = reader.u32()
    while len(group.at) < total:
        _read_stretch(reader, group, index)
    if len(group.at) != total:
        raise FieldSyntaxError(f"{len(group.at)} entries instead of {total}")
    for _ in range(reader.count(20)):
        number = reader.u64()
        at = reader.u64()
        group.keep(number, at, reader.u32(), index.space)
    return group


def _read_stretch(reader: Reader, group: Group, index: Index) -> None:
    begin = reader.u64()
    count = reader.count(4)
    if count == 0:
        raise FieldSyntaxError("a stretch of no entries")
    at = begin
    for _ in range(count):
        size = reader.u32()
        group.append(at, size)
        at += size
    index.space.gain(file_of(begin), at - begin)
