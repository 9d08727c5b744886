"""A disk that may lose unsynced data, keep a part of it, or flip a bit of synced data.

It is the real store with small files on a disk in memory. Power may fail at any step of the current
write.
"""

import random

from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import FILE_HEAD_BYTES, Block, whole_block
from leveret.cluster.store.files import Files
from leveret.cluster.store.store import Store
from leveret.testing.disk import FakeDisk
from tests.cluster.simulation.view import View

SALT = 12345
HOUSEKEEP_BYTES = 2000


class FixedFiles(Files):
    """Without chance of its own."""

    def salt(self) -> int:
        return SALT


Writes = list[tuple[int, Ready]]  # by group


class Disk:
    """The log of one node. A view is what a start must find of a group after a crash right now."""

    def __init__(self, file_bytes: int = 1000) -> None:
        self.file_bytes = file_bytes
        self.views: dict[int, View] = {}
        self._damaged_file = ""
        self.is_checked = True  # whether a start must find what was synced
        self._disk = FakeDisk()
        self._begin()
        self._block: Block | None = None  # under way
        self._pending: Writes = []  # what is in it, and what waits for the next one
        self._waiting: Writes = []

    def _begin(self) -> None:
        self._files = FixedFiles(self._disk)
        self._store = Store.open(self._files, 1, 1, self.file_bytes)
        self._store.checkpoint_share = 3

    @property
    def is_damaged(self) -> bool:
        """Whether a bit was turned in a file that is needed."""
        return bool(self._damaged_file)

    def write(self, writes: Writes, must_sync: bool) -> None:
        """What members ask to be written; where it must be synced, the write begins."""
        for group, ready in writes:
            self._store.add(group, ready)
        self._waiting += writes
        if must_sync:
            self._store.housekeep(HOUSEKEEP_BYTES)
            self._block = self._store.take()
            assert self._block is not None
            self._pending, self._waiting = self._waiting, []

    def sync(self) -> None:
        """All that was begun to be written is safe."""
        block = self._block
        if block is None:
            return
        self._files.write(block)
        self._store.written(block)
        self._block = None
        for group, ready in self._pending:
            self.views[group].apply(ready)
        self._pending = []

    def crash(self, rng: random.Random) -> None:
        """Power fails: of what was not synced nothing is left, or a part, or all."""
        moment = self._disk.moment
        if self._block is not None:
            self._files.write(self._block)
            moment = rng.randint(moment, self._disk.moment)
        self._disk = self._disk.crash(rng, moment)
        self._block = None
        self._waiting = []

    def lose(self) -> None:
        """Power fails, and nothing of what was not synced is left."""
        self._block = None
        self._pending = []
        self._waiting = []

    def damage(self, rng: random.Random) -> bool:
        """Turn a bit before the last whole block, where it cannot pass for a torn write."""
        content = self._disk.contents()
        name = rng.choice([name for name in sorted(content) if name.endswith(".raft")])
        limit = len(content[name])
        if name == max(content):
            limit = _last_block(content[name])
        elif not self._store.index.space.live.get(int(name[:16])):
            return False
        if limit == FILE_HEAD_BYTES:
            return False
        self._disk.flip(name, rng.randrange(limit * 8))
        self._damaged_file = name
        return True

    def start(self) -> None:
        """Read everything back, as a start does; raises CorruptionError for a damaged disk."""
        self._begin()
        if self._damaged_file not in self._disk.names():
            self._damaged_file = ""  # the block under way made it useless: it was removed
        pending, self._pending = self._pending, []
        for group, view in self.views.items():
            stored = self._store.stored(group) if self._store.has(group) else None
            if stored is not None:
                self._compare(view, stored, [ready for of, ready in pending if of == group])
                self.views[group] = View(stored)

    def _compare(self, view: View, stored: Stored, pending: list[Ready]) -> None:
        """Of what was under way all is there, or nothing."""
        difference = view.differs(stored)
        if difference and pending:
            for ready in pending:
                view.apply(ready)
            difference = view.differs(stored)
        assert not difference or not self.is_checked, f"another disk than before: {difference}"

    def stored(self, group: int, members: Members) -> Stored:
        """What a member begins with; a new one with these members."""
        if self._store.has(group):
            return self._store.stored(group)
        self._store.create(group, members)
        block = None if self._block is not None else self._store.take()
        if block is not None:
            self._files.write(block)
            self._store.written(block)
        self.views[group] = View(Stored(members))
        return Stored(members)


def _last_block(data: bytes) -> int:
    """Where the last whole block begins."""
    at = last = FILE_HEAD_BYTES
    number = int.from_bytes(data[36:44], "big")
    while size := whole_block(data, at, number, SALT):
        last = at
        at += size
        number += 1
    return last
