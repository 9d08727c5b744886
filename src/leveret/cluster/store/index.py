"""The positions of the records of all groups, and how a start reads them from the log.

The checkpoint at the beginning of a file is the whole index at that time. The records after it are
applied one by one, exactly as the store changed its own index when it wrote them.
"""

from mypy_extensions import i64

from leveret.cluster.raft.fields import Reader
from leveret.cluster.store.group import Group
from leveret.cluster.store.places import Space, file_of
from leveret.cluster.store.records import (
    CREATE,
    DELETE,
    ENTRIES,
    INSTALL,
    MOVED,
    MOVED_SNAPSHOT,
    SNAPSHOT,
    STATE,
    Record,
    read_record,
)
from leveret.errors import CorruptionError, FieldSyntaxError


class Index:
    """Where everything stands."""

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self.space = Space()

    def create(self, number: i64, group: Group) -> None:
        self.groups[number] = group

    def delete(self, number: i64) -> None:
        self.groups.pop(number).drop(self.space)

    # Reading back

    def replay(self, reader: Reader, base: i64) -> None:
        """All records up to the reader's end; `base` is the place of the first byte of its data."""
        try:
            while reader.left():
                self._apply(read_record(reader), base)
        except FieldSyntaxError as fault:
            raise CorruptionError(f"a block whose sum is right cannot be read: {fault}") from fault

    def _apply(self, record: Record, base: i64) -> None:
        if record.kind == CREATE:
            members = record.members
            assert members is not None
            if record.group in self.groups:
                raise FieldSyntaxError(f"group {record.group} begins twice")
            self.create(record.group, Group(members))
            return
        group = self.groups.get(record.group)
        if group is None:
            raise FieldSyntaxError(f"a record of group {record.group}, which does not exist")
        if record.kind == DELETE:
            self.delete(record.group)
        elif record.kind == STATE:
            group.term = record.term
            group.vote = record.vote
            group.commit = record.commit
        elif record.kind == ENTRIES:
            self._append(group, record, base)
        else:
            self._apply_rare(group, record, base)

    def _append(self, group: Group, record: Record, base: i64) -> None:
        first = record.index
        if first < group.first or first > group.last() + 1:
            raise FieldSyntaxError(
                f"entries from {first} on, after {group.first} to {group.last()}"
            )
        group.cut(first, self.space)
        total: i64 = 0
        for here in range(len(record.offsets)):
            size = i64(record.sizes[here])
            group.append(base + record.offsets[here], size)
            total += size
        self.space.gain(file_of(base), total)

    def _apply_rare(self, group: Group, record: Record, base: i64) -> None:
        space = self.space
        index = record.index
        if record.kind == SNAPSHOT:
            if index < group.first - 1 or not group.has_all(index, record.live):
                raise FieldSyntaxError(f"a snapshot at {index} whose live entries are not there")
            group.snapshot(index, record.live, base + record.at, record.size, space)
        elif record.kind == INSTALL:
            group.install(index, base + record.at, record.size, space)
            for here in range(len(record.offsets)):
                at = base + record.offsets[here]
                group.keep(record.live[here], at, record.sizes[here], space)
        elif record.kind == MOVED:
            if group.find(index) == 0 or group.size_of(index) != record.sizes[0]:
                raise FieldSyntaxError(f"entry {index} is moved, and is not there")
            group.move(index, base + record.offsets[0], space)
        else:
            assert record.kind == MOVED_SNAPSHOT
            if index != group.snapshot_index or group.snapshot_size == 0:
                raise FieldSyntaxError(f"a snapshot at {index} is moved, and is not there")
            group.move_snapshot(base + record.at, record.size, space)
