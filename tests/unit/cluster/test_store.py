"""Members find what they wrote; a torn end is cut off, and damage is refused."""

import errno
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leveret.cluster.raft.entry import COMMAND, Entry, Members
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.snapshot import Snapshot, decode_snapshot
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import BLOCK_HEAD_BYTES, Block, require_torn
from leveret.cluster.store.files import Files, file_name
from leveret.cluster.store.store import Store
from leveret.errors import CorruptionError, FieldSyntaxError, NewerFormatError, StorageError
from leveret.storage.disk import Disk
from leveret.testing.disk import FakeDisk

MEMBERS = Members([1, 2, 3], [])
GROUP = 7
NODE = 2
FIRST = file_name(1)


def state(term: int, vote: int, commit: int) -> Ready:
    ready = Ready(term, vote, commit)
    ready.is_changed = ready.must_sync = True
    return ready


def commit(index: int) -> Ready:
    ready = Ready(1, 1, index)
    ready.is_changed = True
    return ready


def entries(first: int, *terms: int, body: bytes = b"") -> Ready:
    ready = Ready(0, 0, 0)
    ready.entries = [
        Entry(first + at, term, COMMAND, f"{first + at}.{term}".encode() + body)
        for at, term in enumerate(terms)
    ]
    ready.must_sync = True
    return ready


def snapshot(index: int, live: list[Entry], *, received: bool = False) -> Ready:
    ready = Ready(0, 0, 0)
    ready.snapshot = Snapshot(index, 1, MEMBERS, b"state at %d" % index, live)
    ready.is_received = received
    ready.must_sync = True
    return ready


class Node:
    """A store, and the disk below it."""

    def __init__(self, disk: Disk | None = None, file_bytes: int = 1 << 20) -> None:
        self.disk = disk if isinstance(disk, FakeDisk) else FakeDisk()
        self.files = Files(disk or self.disk)
        self.store = Store.open(self.files, NODE, 5, file_bytes)
        if not self.store.has(GROUP):
            self.store.create(GROUP, MEMBERS)

    def write(self, *readies: Ready) -> None:
        """Each in a block of its own."""
        for ready in readies:
            self.store.add(GROUP, ready)
            self.save()

    def save(self) -> Block | None:
        block = self.store.take()
        if block is not None:
            self.files.write(block)
            self.store.written(block)
        return block

    def restarted(self) -> "Node":
        return Node(self.disk.copy(), self.store.file_bytes)

    def found_live(self) -> list[tuple[int, bytes]]:
        """The live entries on the disk as it is."""
        snapshot = self.store.stored(GROUP).snapshot
        assert snapshot is not None
        return [(entry.index, entry.data) for entry in snapshot.live]

    def found(self) -> Stored:
        return self.restarted().store.groups()[GROUP]


def opened(disk: FakeDisk) -> Store:
    return Store.open(Files(disk), NODE, 5)


def test_term_vote_and_entries_are_found_again() -> None:
    node = Node()
    node.write(state(3, 2, 0), entries(1, 1, 3), state(3, 2, 1))
    found = node.found()
    assert (found.term, found.vote, found.commit) == (3, 2, 1)
    assert [(entry.index, entry.term) for entry in found.entries] == [(1, 1), (2, 3)]
    assert found.members.voters == [1, 2, 3]


def test_entries_replace_what_was_from_their_first_on() -> None:
    node = Node()
    node.write(entries(1, 1, 1, 1), entries(2, 2))
    assert [entry.term for entry in node.found().entries] == [1, 2]


def test_snapshot_keeps_live_entries_and_what_follows() -> None:
    node = Node()
    first = entries(1, 1, 1, 1, 1)
    node.write(first, snapshot(3, [first.entries[1]]))
    found = node.found()
    assert found.snapshot is not None
    assert [entry.data for entry in found.snapshot.live] == [b"2.1"]
    assert [entry.index for entry in found.entries] == [4]
    # And a later snapshot may keep what only the earlier one has kept.
    node.write(snapshot(4, [first.entries[1]]))
    found = node.found()
    assert found.snapshot is not None
    assert [entry.index for entry in found.snapshot.live] == [2]


def test_received_snapshot_replaces_everything() -> None:
    node = Node()
    received = snapshot(9, [Entry(8, 4, COMMAND, b"body")], received=True)
    node.write(entries(1, 1, 1), received, entries(10, 4))
    found = node.found()
    assert found.snapshot is not None
    assert found.snapshot.live[0].data == b"body"
    assert [entry.index for entry in found.entries] == [10]


def test_commit_alone_starts_no_sync_and_rides_along() -> None:
    node = Node()
    node.write(state(1, 1, 0), entries(1, 1, 1))
    node.store.add(GROUP, commit(1))
    assert node.save() is None
    assert node.found().commit == 0
    node.store.add(GROUP, commit(2))
    node.write(entries(3, 1))
    assert node.found().commit == 2
    node.store.add(GROUP, commit(3))
    while node.store.flush():  # as before a stop
        assert node.save() is not None
    assert node.found().commit == 3


def test_groups_of_one_turn_are_one_block_and_one_sync() -> None:
    node = Node()
    for group in range(100, 3100):
        node.store.create(group, MEMBERS)
    node.save()
    before = node.disk.counts["sync"], node.disk.counts["write"]
    for group in range(100, 3100):
        node.store.add(group, entries(1, 1))
    node.save()
    assert (node.disk.counts["sync"], node.disk.counts["write"]) == (before[0] + 1, before[1] + 1)
    found = node.restarted().store.groups()
    assert len(found) == 3001
    assert all(len(found[group].entries) == 1 for group in range(100, 3100))


def test_group_that_was_made_anew_finds_nothing_of_the_old_one() -> None:
    node = Node()
    node.write(state(5, 1, 0), entries(1, 5))
    node.store.delete(GROUP)
    node.store.create(GROUP, Members([4], []))
    node.save()
    found = node.found()
    assert (found.term, found.vote, found.entries, found.members.voters) == (0, 0, [], [4])


def test_what_comes_while_a_block_is_under_way_is_the_next_one() -> None:
    node = Node()
    node.save()
    node.store.add(GROUP, entries(1, 1))
    first = node.store.take()
    assert first is not None
    node.store.add(GROUP, entries(2, 1))
    assert node.store.take() is None
    for index in (1, 2):  # neither is on disk
        entry = node.store.entry(GROUP, index)
        assert entry is not None
        assert entry.data == b"%d.1" % index
    node.files.write(first)
    node.store.written(first)
    second = node.store.take()
    assert second is not None
    assert second.number == first.number + 1


# Files


def test_files_without_use_are_removed_and_sparse_ones_emptied() -> None:
    node = Node(file_bytes=4096)
    live: list[Entry] = []
    for first in range(1, 400, 4):
        ready = entries(first, 1, 1, 1, 1, body=bytes(100))
        node.write(ready)
        live = [*live, ready.entries[0]][-3:] if live else ready.entries[:1]
        node.write(snapshot(first + 3, live))
    sizes = node.store.index.space.size
    assert len(sizes) < 4 < max(sizes)
    assert node.found().snapshot is not None
    kept = Entry(1, 1, COMMAND, b"1.1" + bytes(100))
    node = Node(file_bytes=4096)
    node.write(entries(1, 1, body=bytes(100)), snapshot(1, [kept]))
    for first in range(2, 100):
        node.write(entries(first, 1, body=bytes(100)), snapshot(first, [kept]))
        while node.store.housekeep(1000):
            node.save()
        node.save()
    assert min(node.store.index.space.size) > 2
    found = node.restarted().store.entry(GROUP, 1)
    assert found is not None
    assert found.data == kept.data


def test_start_reads_each_byte_a_bounded_number_of_times() -> None:
    """However long the log: every file once for its sums, entries once more."""
    costs = []
    for count in (200, 800):
        node = Node(file_bytes=20_000)
        for first in range(1, count):
            node.write(entries(first, 1, body=bytes(200)))
        disk = CountingDisk(node.disk)
        Store.open(Files(disk), NODE, 5).groups()
        costs.append(disk.read_bytes / node.disk.used_bytes())
    assert max(costs) <= 2.1
    assert costs[1] <= costs[0] * 1.1


class CountingDisk(FakeDisk):
    """Counts what is read of a copy of another disk."""

    def __init__(self, other: FakeDisk) -> None:
        super().__init__()
        self.read_bytes = 0
        for name, content in other.contents().items():
            self.put(name, content)

    def read_file(self, number: int, size: int, offset: int) -> bytes:
        data = super().read_file(number, size, offset)
        self.read_bytes += len(data)
        return data


# Damage


def test_every_torn_end_is_cut_off() -> None:
    node = Node()
    node.write(state(1, 1, 0), entries(1, 1))
    whole = node.disk.content(FIRST)
    node.write(entries(2, 1))
    data = node.disk.content(FIRST)
    for size in range(len(whole), len(data)):
        torn = FakeDisk()
        torn.put(FIRST, data[:size])
        store = opened(torn)
        assert store.torn_bytes == size - len(whole)
        assert len(store.stored(GROUP).entries) == 1
        assert torn.content(FIRST) == whole


def test_damage_is_refused_wherever_it_is_but_in_the_last_block() -> None:
    node = Node(file_bytes=300)
    for index in range(1, 13):
        node.write(entries(index, 1, body=bytes(20)))
    names = [name for name in node.disk.names() if name.endswith(".raft")]
    assert len(names) > 1
    limits = {name: len(node.disk.content(name)) for name in names}
    node.write(entries(13, 1, body=bytes(20)))
    assert len(node.disk.content(names[-1])) > limits[names[-1]], "the last one is in a file alone"
    for name, limit in limits.items():
        for spot in range(limit):
            broken = node.disk.copy()
            broken.flip(name, spot * 8 + spot % 8)
            with pytest.raises(StorageError):
                opened(broken)
    for spot in range(limits[names[-1]], len(node.disk.content(names[-1]))):
        broken = node.disk.copy()
        broken.flip(names[-1], spot * 8 + spot % 8)
        assert len(opened(broken).stored(GROUP).entries) == 12


def test_damage_of_the_last_block_is_noticed_too_once_it_is_flushed() -> None:
    node = Node()
    node.write(entries(1, 1), entries(2, 1))
    while node.store.flush():
        node.save()
    size = len(node.disk.content(FIRST))
    for spot in range(size - BLOCK_HEAD_BYTES):
        broken = node.disk.copy()
        broken.flip(FIRST, spot * 8 + spot % 8)
        with pytest.raises(StorageError):
            opened(broken)
    for spot in range(size - BLOCK_HEAD_BYTES, size):
        broken = node.disk.copy()
        broken.flip(FIRST, spot * 8 + spot % 8)
        assert len(opened(broken).stored(GROUP).entries) == 2


def test_file_that_is_missing_or_cut_short_is_noticed() -> None:
    node = Node(file_bytes=300)
    for index in range(1, 13):
        node.write(entries(index, 1, body=bytes(20)))
    names = [name for name in node.disk.names() if name.endswith(".raft")]
    for name in names[:-1]:
        gone = node.disk.copy()
        gone.remove(name)
        with pytest.raises(CorruptionError, match="missing"):
            opened(gone)
        short = node.disk.copy()
        short.put(name, short.content(name)[:-60])
        with pytest.raises(CorruptionError):
            opened(short)
        other = node.disk.copy()
        other.put(name, other.content(names[-1]))
        with pytest.raises(CorruptionError):
            opened(other)


def test_body_that_looks_like_a_later_block_does_not_make_a_torn_end_damage() -> None:
    node = Node()
    node.write(entries(1, 1))
    block = Block(5, 1, 0, b"records")
    block.salt = 1  # whoever publishes it does not know the right one
    node.write(entries(2, 1, body=b"".join(block.pieces()) + bytes(100)))
    data = node.disk.content(FIRST)
    torn = FakeDisk()
    torn.put(FIRST, data[:-50])
    assert len(opened(torn).stored(GROUP).entries) == 1


def test_looking_for_a_later_block_takes_linear_time() -> None:
    """Even where every place looks a little like the head of a large block of the right number."""
    spent = []
    for count in (10_000, 40_000):
        data = (50_000).to_bytes(4, "big") + (6).to_bytes(8, "big")
        data = data * count
        begun = time.process_time()
        require_torn(data, 0, 5, 77, "it")
        spent.append(time.process_time() - begun)
    assert spent[1] < spent[0] * 9  # squared it would be 16 times


def test_head_of_a_later_block_tells_that_the_one_before_was_synced() -> None:
    node = Node()
    node.write(entries(1, 1))
    begin = len(node.disk.content(FIRST))
    node.write(entries(2, 1))
    head_end = len(node.disk.content(FIRST)) + BLOCK_HEAD_BYTES
    node.write(entries(3, 1))
    broken = FakeDisk()
    broken.put(FIRST, node.disk.content(FIRST)[:head_end])
    broken.flip(FIRST, (begin + 4) * 8)
    with pytest.raises(CorruptionError, match="follows"):
        opened(broken)


def test_log_of_another_node_cluster_or_version_is_not_taken() -> None:
    node = Node()
    node.write(entries(1, 1))
    with pytest.raises(StorageError, match="node 2"):
        Store.open(Files(node.disk.copy()), NODE + 1, 5)
    with pytest.raises(StorageError, match="cluster 5"):
        Store.open(Files(node.disk.copy()), NODE, 6)
    data = bytearray(node.disk.content(FIRST))
    data[11] += 1
    data[52:56] = (zlib.crc32(data[:52]) & 0x7FFFFFFF).to_bytes(4, "big")
    node.disk.put(FIRST, bytes(data))
    with pytest.raises(NewerFormatError):
        opened(node.disk)


@pytest.mark.parametrize("fault", ["fail_sync", "fail_write"])
def test_write_that_fails_is_the_last_one(fault: str) -> None:
    node = Node()
    node.write(entries(1, 1))
    node.store.add(GROUP, entries(2, 1))
    block = node.store.take()
    assert block is not None
    getattr(node.disk, fault)(code=errno.EIO)
    with pytest.raises(StorageError):
        node.files.write(block)
    with pytest.raises(StorageError, match="before"):
        node.files.write(block)


def test_real_files_are_written_and_found_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "raft")
    disk.prepare()
    node = Node(disk, file_bytes=2000)
    for index in range(1, 60):
        node.write(entries(index, 1, body=bytes(50)))
        if index % 10 == 0:
            node.write(snapshot(index, []))
    node.files.close()
    assert 1 <= len(Files(disk).numbers()) <= 3
    found = Node(disk, file_bytes=2000).store.groups()[GROUP]
    assert [entry.index for entry in found.entries] == list(range(51, 60))
    disk.release()


def test_thread_writes_while_entries_are_read_and_moved(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "raft")
    disk.prepare()
    node = Node(disk, file_bytes=20_000)
    kept: list[Entry] = []
    with ThreadPoolExecutor(1) as thread:
        for index in range(1, 600):
            node.store.add(GROUP, entries(index, 1, body=bytes(300)))
            block = node.store.take()
            assert block is not None
            writing = thread.submit(node.files.write, block)
            node.store.housekeep(5000)
            for number in [entry.index for entry in kept] + [index]:
                found = node.store.entry(GROUP, number)
                assert found is not None
                assert found.data == b"%d.1" % number + bytes(300)
            writing.result()
            node.store.written(block)
            if index % 20 == 0:
                newest = node.store.entry(GROUP, index)
                assert newest is not None
                kept = [*kept[-4:], newest] if index > 100 else [*kept, newest]
                node.write(snapshot(index, kept))
    node.files.close()
    assert min(Files(disk).numbers()) > 3
    found_again = Node(disk, file_bytes=20_000).found_live()
    assert found_again == [(entry.index, entry.data) for entry in kept]
    disk.release()


@pytest.mark.parametrize("size", [0, 1, 20, 60])
def test_snapshot_that_is_cut_short_is_refused(size: int) -> None:
    blob = Snapshot(3, 1, MEMBERS, b"state", [Entry(2, 1, COMMAND, b"body")]).blob()
    assert decode_snapshot(blob).state == b"state"
    with pytest.raises(FieldSyntaxError):
        decode_snapshot(blob[:size])
