"""The state of a node's groups on disk, as plain values; also makes the work that changes it."""

import random

from leveret.cluster.raft.entry import COMMAND, EMPTY, Entry, Members
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored

Shown = tuple[object, ...]


def show_entry(entry: Entry) -> tuple[int, int, int, bytes]:
    return entry.index, entry.term, entry.kind, entry.data


def show_members(members: Members) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(members.voters), tuple(members.non_voters)


def show(stored: Stored) -> Shown:
    """All that a member begins with."""
    found = stored.snapshot
    snapshot: Shown | None = None
    if found is not None:
        live = tuple(show_entry(entry) for entry in found.live)
        snapshot = (found.index, found.term, show_members(found.members), found.state, live)
    return (
        stored.term,
        stored.vote,
        stored.commit,
        show_members(stored.members),
        snapshot,
        tuple(show_entry(entry) for entry in stored.entries),
    )


class ModelGroup:
    """One group, kept as simply as can be."""

    def __init__(self, members: Members) -> None:
        self.stored = Stored(members)

    @property
    def base(self) -> int:
        return 0 if self.stored.snapshot is None else self.stored.snapshot.index

    @property
    def last(self) -> int:
        return self.base + len(self.stored.entries)

    def find(self, index: int) -> Entry | None:
        snapshot = self.stored.snapshot
        if index > self.base:
            return self.stored.entries[index - self.base - 1] if index <= self.last else None
        live = [] if snapshot is None else snapshot.live
        return next((entry for entry in live if entry.index == index), None)

    def apply(self, ready: Ready) -> None:
        stored = self.stored
        if ready.is_changed:
            stored.term, stored.vote, stored.commit = ready.term, ready.vote, ready.commit
        snapshot = ready.snapshot
        if snapshot is not None:
            kept = [] if ready.is_received else stored.entries
            stored.entries = [entry for entry in kept if entry.index > snapshot.index]
            stored.snapshot = snapshot
            stored.members = snapshot.members
        if ready.entries:
            keep = ready.entries[0].index - self.base - 1
            stored.entries = stored.entries[:keep] + ready.entries


class Work:
    """Makes `Ready`s such as members make them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0

    def ready(self, group: ModelGroup) -> Ready:
        stored = group.stored
        ready = Ready(stored.term, stored.vote, stored.commit)
        kinds = (self._append, self._state, self._commit, self._snapshot, self._install)
        self.rng.choices(kinds, (8, 2, 3, 3, 1))[0](group, ready)
        return ready

    def entry(self, index: int, term: int) -> Entry:
        self.count += 1
        if self.rng.random() < 0.05:
            return Entry(index, term, EMPTY, b"")
        size = self.rng.choice((0, 3, 40, 200))
        return Entry(index, term, COMMAND, b"%d:" % self.count + bytes(size))

    def _append(self, group: ModelGroup, ready: Ready) -> None:
        first = group.last + 1
        if self.rng.random() < 0.2:  # what is not committed may be replaced
            first = self.rng.randint(max(group.base, group.stored.commit) + 1, first)
        ready.term += first <= group.last
        ready.is_changed = ready.term != group.stored.term
        term = max(1, ready.term)
        ready.entries = [self.entry(first + n, term) for n in range(self.rng.randint(1, 6))]
        ready.must_sync = True

    def _state(self, group: ModelGroup, ready: Ready) -> None:
        ready.term += 1
        ready.vote = self.rng.randint(0, 3)
        ready.is_changed = ready.must_sync = True

    def _commit(self, group: ModelGroup, ready: Ready) -> None:
        ready.commit = self.rng.randint(ready.commit, max(ready.commit, group.last))
        ready.is_changed = True

    def _snapshot(self, group: ModelGroup, ready: Ready) -> None:
        index = self.rng.randint(group.base, max(group.base, group.stored.commit))
        if index <= group.base:
            return self._append(group, ready)
        share = self.rng.choice((0.0, 0.1, 0.5))
        found = [group.find(number) for number in range(1, index + 1)]
        live = [entry for entry in found if entry is not None and self.rng.random() < share]
        last = group.find(index)
        assert last is not None
        state = bytes(self.rng.choice((0, 30, 300)))
        ready.snapshot = Snapshot(index, last.term, Members([1, 2, index + 5], []), state, live)
        ready.must_sync = True
        return None

    def _install(self, group: ModelGroup, ready: Ready) -> None:
        index = group.last + self.rng.randint(1, 5)
        live = [self.entry(n, max(1, ready.term)) for n in range(1, index) if n % 3 == 0][-4:]
        ready.snapshot = Snapshot(index, ready.term, Members([1], [2]), b"installed", live)
        ready.is_received = True
        ready.commit = index
        ready.is_changed = ready.must_sync = True
        if self.rng.random() < 0.5:
            ready.entries = [self.entry(index + 1, max(1, ready.term))]
