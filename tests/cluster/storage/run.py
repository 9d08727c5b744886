"""One run of the store on a disk that loses power, checked against the model at every step.

After a power cut the store must have exactly the state of the last synced block, or the state after
the block that was being written. Every state of the disk between the beginning and the end of each
write is tried, with any part of the unsynced data lost.
"""

import random
from contextlib import suppress

from leveret.cluster.raft.entry import Members
from leveret.cluster.store.blocks import Block
from leveret.cluster.store.compaction import LIVE_PERCENT_MIN
from leveret.cluster.store.files import Files
from leveret.cluster.store.places import file_of
from leveret.cluster.store.store import Store
from leveret.testing.disk import FakeDisk
from tests.cluster.storage.model import ModelGroup, Shown, Work, show, show_entry

NODE = 3
CLUSTER = 9
GROUPS_MAX = 5


class ViolationError(Exception):
    """Something that must hold does not."""


def require(holds: bool, text: str) -> None:
    if not holds:
        raise ViolationError(text)


class KilledError(Exception):
    """The process ends here."""


class KillDisk(FakeDisk):
    """A disk whose user is killed before an operation: what was written stays, synced or not."""

    def __init__(self, other: FakeDisk | None = None) -> None:
        super().__init__()
        self.kill_before = -1  # how many operations from now; negative: never
        for name, content in (other.contents() if other else {}).items():
            self.put(name, content)

    def _begin(self, operation: str) -> None:
        super()._begin(operation)
        self.kill_before -= 1
        if self.kill_before == 0:
            raise KilledError


class Run:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.work = Work(self.rng)
        self.file_bytes = self.rng.choice((300, 1500, 6000))
        self.disk = KillDisk()
        self.disk.short_writes = self.rng.random() < 0.3
        self.files = Files(self.disk)
        self.store = self._open(self.disk)
        self.groups: dict[int, ModelGroup] = {}
        self.next_group = 1
        self.synced: dict[int, Shown] = {}  # what a start must find
        self.crashes = self.rolls = self.moves = 0

    def _open(self, disk: FakeDisk) -> Store:
        self.files = Files(disk)
        store = Store.open(self.files, NODE, CLUSTER, self.file_bytes)
        store.checkpoint_share = 2  # many files
        return store

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()
        self.settle()

    # Work

    def turn(self) -> None:
        """Some groups have something to write; a block may become of it."""
        for _ in range(self.rng.randint(1, 3)):
            self._change()
        if self.rng.random() < 0.5:
            self.moves += self.store.housekeep(self.rng.choice((1, 500, 10_000)))
        if self.rng.random() < 0.1:
            self.store.flush()
        block = self.store.take()
        if block is not None:
            self._write(block)

    def _change(self) -> None:
        chance = self.rng.random()
        if not self.groups or (chance < 0.1 and len(self.groups) < GROUPS_MAX):
            members = Members([1, 2, 3], []) if self.rng.random() < 0.7 else Members([], [])
            self.store.create(self.next_group, members)
            self.groups[self.next_group] = ModelGroup(members)
            self.next_group += 1
            return
        number = self.rng.choice(list(self.groups))
        if chance > 0.96:
            self.store.delete(number)
            del self.groups[number]
            if self.rng.random() < 0.5:  # nobody should; and still nothing old may come back
                self.store.create(number, Members([7], []))
                self.groups[number] = ModelGroup(Members([7], []))
            return
        ready = self.work.ready(self.groups[number])
        self.store.add(number, ready)
        self.groups[number].apply(ready)
        self._check_entries(number)

    def _check_entries(self, number: int) -> None:
        """Entries can be read back wherever they are by now."""
        group = self.groups[number]
        for _ in range(2):
            index = self.rng.randint(1, group.last + 1)
            want, found = group.find(index), self.store.entry(number, index)
            shown = (want and show_entry(want), found and show_entry(found))
            require(shown[0] == shown[1], f"entry {index} of {number}: {shown}")

    # The disk

    def shown(self) -> dict[int, Shown]:
        return {number: show(group.stored) for number, group in self.groups.items()}

    def _write(self, block: Block) -> None:
        before = self.disk.moment
        after = self.shown()
        self.rolls += bool(block.file_head)
        self._work_meanwhile()
        if self.rng.random() < 0.1:
            self._kill(block, after)
            return
        self.files.write(block)
        for moment in range(before, self.disk.moment + 1):
            self._check_crash(moment, after, is_synced=moment == self.disk.moment)
        if self.rng.random() < 0.08:
            self._crash(self.rng.randint(before, self.disk.moment), after)
            return
        self.store.written(block)
        self.synced = after
        self._check_space()

    def _work_meanwhile(self) -> None:
        """What comes while a block is being written is for the next one."""
        if self.rng.random() < 0.5:
            self._change()
            self.moves += self.store.housekeep(self.rng.choice((1, 500, 10_000)))
            require(self.store.take() is None, "two blocks under way")

    def _check_crash(self, moment: int, after: dict[int, Shown], *, is_synced: bool) -> None:
        found = self._start(self.disk.crash(self.rng, moment))
        require(found == after or not is_synced, "a block that was synced is not found again")
        require(found in (self.synced, after), "a start finds what was never there")
        if moment == self.disk.moment:
            require(self._start(self.disk.killed()) == after, "what was written is not found")

    def _start(self, disk: FakeDisk) -> dict[int, Shown]:
        store = Store.open(Files(disk), NODE, CLUSTER, self.file_bytes)
        return {number: show(stored) for number, stored in store.groups().items()}

    def _crash(self, moment: int, after: dict[int, Shown]) -> None:
        """Power fails; the run goes on from what is left."""
        self.crashes += 1
        self.disk = KillDisk(self.disk.crash(self.rng, moment))
        self._go_on(after)

    def _kill(self, block: Block, after: dict[int, Shown]) -> None:
        """The process is killed while it writes, and started again; then power fails."""
        self.disk.kill_before = self.rng.randint(1, 6)
        with suppress(KilledError):
            self.files.write(block)
        self.disk.kill_before = -1
        self._go_on(after)
        found = self._start(self.disk.crash(self.rng))
        require(found == self.synced, "what a start relied on was not safe")

    def _go_on(self, after: dict[int, Shown]) -> None:
        """Start again from what is left."""
        self.store = self._open(self.disk)
        stored = self.store.groups()
        found = {number: show(state) for number, state in stored.items()}
        require(found in (self.synced, after), "a start finds what was never there")
        self.groups = {}
        for number, state in stored.items():
            self.groups[number] = ModelGroup(state.members)
            self.groups[number].stored = state
        self.next_group = max([self.next_group, *stored])
        self.synced = found

    # Room

    def _check_space(self) -> None:
        """What is counted is what is there."""
        live: dict[int, int] = {}
        space = self.store.index.space
        for group in self.store.index.groups.values():
            places = list(zip(group.at, group.size, strict=True))
            places += zip(group.kept_at, group.kept_size, strict=True)
            if group.snapshot_size:
                places.append((group.snapshot_at, group.snapshot_size))
            for at, size in places:
                live[file_of(at)] = live.get(file_of(at), 0) + size
        counted = {file: size for file, size in space.live.items() if size}
        require(counted == live, f"live bytes {counted}, there are {live}")

    def settle(self) -> None:
        """When there is no more to do, every file but the last is worth its room."""
        for _ in range(1000):
            has_more = self.store.housekeep(5000)
            block = self.store.take()
            if block is not None:
                self._write(block)
            elif not has_more:
                break
        else:
            raise ViolationError("giving room back does not come to an end")
        space = self.store.index.space
        sizes = list(space.size.items())[:-1]
        for file, size in sizes:
            require(space.live[file] * 100 >= size * LIVE_PERCENT_MIN, f"file {file} is sparse")
        names = [name for name in self.disk.names() if name.endswith(".raft")]
        require(len(names) == len(space.size), f"files {names}, known are {list(space.size)}")
