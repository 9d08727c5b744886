"""One log for all groups of a node: the writes of a turn are one block.

    store = Store.open(files, node)        reads the log; `CorruptionError` if it cannot be trusted
    store.groups()                         the state that each member starts with
    store.create(group, members)           a group with a number that was never used before
    store.add(group, ready)                the writes of a member
    block = store.take()                   None: nothing has to be synced now
    files.write(block)                     in any thread; then, back in this one:
    store.written(block)                   everything added before `take` is safe
    store.housekeep(bytes)                 a step of compaction, now and then

A commit index alone starts no sync: it waits in memory for the next block. One block is being
written at a time; everything added meanwhile goes to the next one.

Invariant: the index is what a start would make of the blocks taken and of the one being made.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.cluster.raft.entry import Entry, Members, read_entry, write_entry
from leveret.cluster.raft.fields import Reader
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    Block,
    FileHead,
    encode_file_head,
)
from leveret.cluster.store.checkpoint import write_checkpoint
from leveret.cluster.store.compaction import Scan, sparsest
from leveret.cluster.store.files import Files
from leveret.cluster.store.group import Group
from leveret.cluster.store.index import Index
from leveret.cluster.store.loading import load
from leveret.cluster.store.places import file_of, offset_of, place
from leveret.cluster.store.records import (
    DELETE,
    MOVED_SNAPSHOT,
    SNAPSHOT,
    Record,
    write_create,
    write_entries,
    write_head,
    write_install,
    write_moved,
    write_snapshot,
    write_state,
)
from leveret.cluster.store.recovery import Found, recover
from leveret.errors import CorruptionError, FieldSyntaxError

FILE_BYTES: Final = 64 * 1024 * 1024
# A file is at least so many times as large as the checkpoint it begins with.
CHECKPOINT_SHARE: Final = 8


class Store:
    """The log of a node; see the module."""

    def __init__(self, files: Files, node: i64, cluster: i64, file_bytes: i64) -> None:
        """Use `open`."""
        self.files = files
        self.node: i64 = node
        self.cluster: i64 = cluster
        self.file_bytes: i64 = file_bytes  # a file that has so many is followed by a new one
        self.checkpoint_share: i64 = CHECKPOINT_SHARE
        self.index = Index()
        self.torn_bytes: i64 = 0  # cut off by the start
        self._salt: i64 = 0
        # The next block
        self._file: i64 = 1
        self._offset: i64 = FILE_HEAD_BYTES
        self._number: i64 = 1
        self._is_new_file = True
        self._writer = BytesWriter()
        self._base: i64 = 0  # the place of the first byte of `_writer`
        self._has_begun = False
        self._dirty: dict[int, Group] = {}  # their term, vote or commit is not written yet
        self._must_sync = False
        self._is_sealed = True  # whether the last block is empty, or there is none
        self._checkpoint_bytes: i64 = 0  # of the current file
        # The block under way
        self._under_way: Block | None = None
        self._removable: list[int] = []  # files that nothing on disk points to
        self._scan: Scan | None = None  # the file that is being compacted

    @staticmethod
    def open(files: Files, node: i64, cluster: i64 = 0, file_bytes: i64 = FILE_BYTES) -> "Store":
        """The store in these files, or a new one."""
        store = Store(files, node, cluster, file_bytes)
        found = recover(files, node, cluster)
        if found is None:
            store._salt = files.salt()
        else:
            store._resume(found)
        return store

    def _resume(self, found: Found) -> None:
        self.index = found.index
        self.torn_bytes = found.torn_bytes
        self._salt = found.head.salt
        self._file = found.head.file
        self._offset = found.end
        self._number = found.next_block
        self._is_new_file = False
        self._is_sealed = False
        self._checkpoint_bytes = found.checkpoint_bytes
        self._maybe_roll()

    # Groups

    def groups(self) -> dict[int, Stored]:
        """What every member begins with, read from disk."""
        return {number: self.stored(number) for number in self.index.groups}

    def stored(self, number: i64) -> Stored:
        """What one member begins with. Nothing of it may be under way."""
        return load(self.files, number, self.index.groups[number])

    def has(self, number: i64) -> bool:
        return number in self.index.groups

    def create(self, number: i64, members: Members) -> None:
        """A group begins with these members, or with none if this node is to be told them.

        Numbers are unique for each incarnation of a group.
        """
        assert number not in self.index.groups, "a group of this number exists"
        self._begin()
        write_create(self._writer, number, members)
        self.index.create(number, Group(members))
        self._must_sync = True

    def delete(self, number: i64) -> None:
        """A group is gone, and all that the log has of it."""
        self._begin()
        write_head(self._writer, DELETE, number)
        self._dirty.pop(number, None)
        self.index.delete(number)
        self._must_sync = True

    # Writing

    def add(self, number: i64, ready: Ready) -> None:
        """What a member asks to be written."""
        group = self.index.groups[number]
        if ready.snapshot is not None or ready.entries:
            self._begin()
        if ready.is_changed:
            group.term = ready.term
            group.vote = ready.vote
            group.commit = ready.commit
            self._dirty[number] = group
        snapshot = ready.snapshot
        if snapshot is not None:
            if ready.is_received:
                self._install(number, group, snapshot)
            else:
                self._snapshot(number, group, snapshot)
        if ready.entries:
            self._append(number, group, ready.entries)
        if ready.must_sync:
            self._must_sync = True

    def _append(self, number: i64, group: Group, entries: list[Entry]) -> None:
        first = entries[0].index
        if first <= group.last():
            group.cut(first, self.index.space)
        writer = self._writer
        write_entries(writer, number, first, len(entries))
        begin: i64 = len(writer)
        at = self._base + begin
        for entry in entries:
            write_entry(writer, entry)
            size = entry.size_bytes()
            group.append(at, size)
            at += size
        self.index.space.gain(self._file, len(writer) - begin)

    def _snapshot(self, number: i64, group: Group, snapshot: Snapshot) -> None:
        writer = self._writer
        write_head(writer, SNAPSHOT, number)
        begin: i64 = len(writer)
        write_snapshot(writer, snapshot)
        size: i64 = len(writer) - begin
        live = [int(entry.index) for entry in snapshot.live]
        group.snapshot(snapshot.index, live, self._base + begin, size, self.index.space)

    def _install(self, number: i64, group: Group, snapshot: Snapshot) -> None:
        begin, size = write_install(self._writer, number, snapshot)
        space = self.index.space
        at = self._base + begin
        group.install(snapshot.index, at, size, space)
        at += size
        for entry in snapshot.live:
            size = entry.size_bytes()
            group.keep(entry.index, at, size, space)
            at += size

    def _begin(self) -> None:
        """Make ready for the first record of a block; one of a new file begins with the index."""
        if self._has_begun:
            return
        self._has_begun = True
        self._base = place(self._file, self._offset + BLOCK_HEAD_BYTES)
        if self._is_new_file:
            write_checkpoint(self._writer, self.index)
            self._checkpoint_bytes = len(self._writer)
            self.index.space.add_file(self._file, 0)

    # Blocks

    def pending_bytes(self) -> i64:
        """What the next block has so far."""
        return len(self._writer)

    def flush(self) -> bool:
        """Have the next block taken even if nothing must be synced; whether there is one.

        For quiet times and before a stop, until there is none: the last one is empty. Damage to the
        block before it can then be told from a torn write, and damage to itself loses nothing.
        """
        if not self._is_sealed or self._dirty or self._removable:
            self._must_sync = True
        return self._must_sync

    def take(self) -> Block | None:
        """What is to be written and synced now, if anything and if the last one is written."""
        if not self._must_sync or self._under_way is not None:
            return None
        self._begin()
        for number, group in self._dirty.items():
            write_state(self._writer, number, group.term, group.vote, group.commit)
        self._dirty.clear()
        block = Block(self._number, self._file, self._offset, self._writer.getvalue())
        block.salt = self._salt
        if self._is_new_file:
            head = FileHead(self.cluster, self.node, self._file, self._number, self._salt)
            block.file_head = encode_file_head(head)
        space = self.index.space
        for file in self._removable:
            self._forget(file)
        block.removals = self._removable
        self._removable = []
        block.dead = space.dead(self._file)
        space.size[self._file] = block.end()
        self._next(block)
        return block

    def _forget(self, file: i64) -> None:
        """A file is about to be removed."""
        self.index.space.forget(file)
        if self._scan is not None and self._scan.file == file:
            self._scan = None

    def _next(self, block: Block) -> None:
        """From here on the next block is made."""
        self._under_way = block
        self._is_sealed = not block.records
        self._number += 1
        self._offset = block.end()
        self._is_new_file = False
        self._writer = BytesWriter()
        self._has_begun = False
        self._must_sync = False
        self._maybe_roll()

    def _maybe_roll(self) -> None:
        if self._offset >= max(self.file_bytes, self.checkpoint_share * self._checkpoint_bytes):
            self._file += 1
            self._offset = FILE_HEAD_BYTES
            self._is_new_file = True

    def written(self, block: Block) -> None:
        """The block is on disk, synced."""
        assert block is self._under_way
        self._under_way = None
        self._removable = block.dead

    # Giving room back

    def housekeep(self, bytes_max: i64) -> bool:
        """Read about so many bytes of a file that is hardly used; whether there is more to do.

        What is still used of them goes into the next block, which has to be taken afterwards. Files
        that are of no use go with it, even if nothing else is to be written.
        """
        if self._removable:
            self._must_sync = True
        scan = self._scan
        if scan is None:
            # Not the file that a block is being written to: it may be full, and is not whole yet.
            under_way = self._under_way
            end = self._file if under_way is None else under_way.file
            file = sparsest(self.index.space, end)
            if file == 0:
                return False
            scan = Scan(self.files, file)
            self._scan = scan
        begin = scan.at
        while not scan.is_done() and scan.at - begin < bytes_max:
            for record in scan.next():
                self._carry(scan, record)
        if scan.is_done():
            assert self.index.space.live[scan.file] == 0, "something was left behind"
            self._scan = None
        return True

    def _carry(self, scan: Scan, record: Record) -> None:
        """Copy what is still pointed to."""
        group = self.index.groups.get(record.group)
        if group is None:
            return
        if record.size and group.snapshot_at == scan.base + record.at:
            self._carry_snapshot(scan, record, group)
        for here in range(len(record.offsets)):
            index = record.number(here)
            offset = i64(record.offsets[here])
            if group.find(index) == scan.base + offset:
                self._begin()
                write_moved(self._writer, record.group, index)
                at = self._base + len(self._writer)
                self._writer.write(scan.data[offset : offset + record.sizes[here]])
                group.move(index, at, self.index.space)
                self._must_sync = True

    def _carry_snapshot(self, scan: Scan, record: Record, group: Group) -> None:
        self._begin()
        write_head(self._writer, MOVED_SNAPSHOT, record.group)
        at = self._base + len(self._writer)
        self._writer.write(scan.data[record.at : record.at + record.size])
        group.move_snapshot(at, record.size, self.index.space)
        self._must_sync = True

    # Reading

    def entry(self, number: i64, index: i64) -> Entry | None:
        """An entry that the log has: after the snapshot, or live."""
        group = self.index.groups[number]
        at = group.find(index)
        if at == 0:
            return None
        size = group.size_of(index)
        data = self._read(at, size)
        try:
            reader = Reader(data, 0, len(data))
            entry = read_entry(reader, index)
            reader.require_end()
        except FieldSyntaxError as fault:
            raise CorruptionError(
                f"entry {index} of group {number} cannot be read: {fault}"
            ) from fault
        return entry

    def _read(self, at: i64, size: i64) -> bytes:
        """From disk, or from a block that is not there yet."""
        block = self._under_way
        if self._has_begun and at >= self._base:
            begin = at - self._base
            return self._writer.getvalue()[begin : begin + size]
        if block is not None and at >= place(block.file, block.offset):
            begin = offset_of(at) - block.records_offset()
            return block.records[begin : begin + size]
        return self.files.read(file_of(at), offset_of(at), size)
