"""The log of one member, as it is in memory.

    live entries … │ base │ base+1 … stable │ stable+1 … last │
    needed by the  │      │ synced          │ to be written   │
    machine only   └ gone, its term is known

`entries` are those after `base_index`, without gaps. A snapshot moves the base forward; of what
goes, the entries that the machine still needs stay in `live`. What is not `stable` has to be
written: a `Ready` hands it out, and `stable_to` is told when it is synced.

The members in force are those of the newest CONFIG entry, committed or not, as in Raft's paper: so
the log keeps each that could become valid again when entries are cut off.

Invariants: base_index <= stable <= last; terms never fall; entries are cut only where they
conflict.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import CONFIG, Entry, Members, decode_members
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored


class Log:
    """Entries by index, and how far they are safe."""

    def __init__(self, stored: Stored) -> None:
        snapshot = stored.snapshot
        self.snapshot = snapshot  # the newest, made here or received
        self.unsaved: Snapshot | None = None  # the same, while it has to be written
        self.is_received = False  # whether the unsaved one came from the leader
        self.base_index: i64 = 0 if snapshot is None else snapshot.index
        self.base_term: i64 = 0 if snapshot is None else snapshot.term
        self.entries: list[Entry] = []
        self.live: dict[int, Entry] = {}
        if snapshot is not None:
            for entry in snapshot.live:
                self.live[entry.index] = entry
        # Members by the index from which on they are in force, ascending.
        self._members_from: list[int] = [int(self.base_index)]
        self._members: list[Members] = [stored.members]
        for entry in stored.entries:
            self._add(entry)
        self.stable: i64 = self.last_index()

    # Looking

    def last_index(self) -> i64:
        return self.base_index + len(self.entries)

    def last_term(self) -> i64:
        return self.entries[-1].term if self.entries else self.base_term

    def term(self, index: i64) -> i64:
        """The term of an entry from the base on."""
        assert self.base_index <= index <= self.last_index()
        if index == self.base_index:
            return self.base_term
        return self.entries[index - self.base_index - 1].term

    def matches(self, index: i64, term: i64) -> bool:
        """Whether there is an entry of this index and term, or the base is that."""
        if index < self.base_index or index > self.last_index():
            return False
        return self.term(index) == term

    def is_up_to_date(self, index: i64, term: i64) -> bool:
        """Whether a log that ends like this has all that this one has committed (§5.4.1)."""
        last_term = self.last_term()
        return term > last_term or (term == last_term and index >= self.last_index())

    def entry(self, index: i64) -> Entry | None:
        """An entry after the base, or one that is kept for the machine."""
        if index > self.base_index:
            at = index - self.base_index - 1
            return self.entries[at] if at < len(self.entries) else None
        return self.live.get(index)

    def slice(self, first: i64, count_max: i64, bytes_max: i64) -> list[Entry]:
        """Entries from `first` on within both limits; the first whatever its size."""
        assert first > self.base_index
        at = first - self.base_index - 1
        end = min(at + count_max, i64(len(self.entries)))
        total: i64 = 0
        here = at
        while here < end:
            total += self.entries[here].size_bytes()
            if total > bytes_max and here > at:
                break
            here += 1
        return self.entries[at:here]

    def size_bytes(self, after: i64, last: i64) -> i64:
        """Of all entries after one index up to another."""
        total: i64 = 0
        for at in range(after - self.base_index, last - self.base_index):
            total += self.entries[at].size_bytes()
        return total

    def guess(self, index: i64, term: i64) -> i64:
        """The last index up to `index` whose term is not over `term`: where logs may agree."""
        at = min(index, self.last_index())
        while at > self.base_index and self.term(at) > term:
            at -= 1
        return at

    def members(self) -> Members:
        """The members in force."""
        return self._members[-1]

    def members_index(self) -> i64:
        """Since when they are."""
        return self._members_from[-1]

    def members_at(self, index: i64) -> Members:
        """The members as of an entry from the base on."""
        at = len(self._members) - 1
        while at > 0 and self._members_from[at] > index:
            at -= 1
        return self._members[at]

    # Changing

    def _add(self, entry: Entry) -> None:
        assert entry.index == self.last_index() + 1
        assert entry.term >= self.last_term()
        self.entries.append(entry)
        if entry.kind == CONFIG:
            self._members_from.append(int(entry.index))
            self._members.append(decode_members(entry.data))

    def append(self, entries: list[Entry]) -> None:
        """Entries that follow the last one."""
        for entry in entries:
            self._add(entry)

    def merge(self, entries: list[Entry], commit: i64) -> None:
        """A leader's entries, of which the one before the first matches (§5.3).

        What matches stays, and all that follows it: the message may be old, and what follows may
        have been acknowledged since. Only an entry of another term cuts the log off.
        """
        at = 0
        while at < len(entries) and self.matches(entries[at].index, entries[at].term):
            at += 1
        if at == len(entries):
            return
        first = entries[at].index
        assert first > commit, "a committed entry would be cut off"
        if first <= self.last_index():
            self._cut(first)
        self.append(entries[at:] if at else entries)

    def _cut(self, first: i64) -> None:
        """Drop the entries from `first` on."""
        assert first > self.base_index
        del self.entries[first - self.base_index - 1 :]
        while len(self._members) > 1 and self._members_from[-1] >= first:
            self._members.pop()
            self._members_from.pop()
        self.stable = min(self.stable, first - 1)

    # What is safe

    def unstable(self) -> list[Entry]:
        """What has to be written. The first of it replaces all that storage has from there on."""
        at = self.stable - self.base_index
        return self.entries[at:] if at < len(self.entries) else []

    def stable_to(self, index: i64, term: i64) -> None:
        """All up to this entry is synced, unless it has been cut off meanwhile."""
        if index > self.stable and self.matches(index, term):
            self.stable = index

    # Snapshots

    def compact(self, index: i64, state: bytes, live: list[int], trailing: i64) -> Snapshot:
        """Begin from a snapshot of the machine at `index`, which is applied.

        The last `trailing` entries before it stay as well, for followers that are a little behind.
        """
        assert self.base_index <= index <= self.last_index()
        kept: list[Entry] = []
        for number in live:
            entry = self.entry(number)
            assert entry is not None, "a live entry is not in the log"
            assert entry.index <= index
            kept.append(entry)
        snapshot = Snapshot(index, self.term(index), self.members_at(index), state, kept)
        self._forget(max(self.base_index, index - trailing), kept)
        self.snapshot = snapshot
        self.unsaved = snapshot
        self.is_received = False
        return snapshot

    def _forget(self, base: i64, kept: list[Entry]) -> None:
        """Move the base, and keep only these of the entries before it."""
        base_term = self.term(base)
        del self.entries[: base - self.base_index]
        self.base_index = base
        self.base_term = base_term
        self.live = {entry.index: entry for entry in kept if entry.index <= base}
        while len(self._members) > 1 and self._members_from[1] <= base:
            self._members.pop(0)
            self._members_from.pop(0)
        self.stable = max(self.stable, base)

    def restore(self, snapshot: Snapshot) -> None:
        """Begin from a snapshot of the leader: nothing of this log is of use."""
        self.snapshot = snapshot
        self.unsaved = snapshot
        self.is_received = True
        self.base_index = snapshot.index
        self.base_term = snapshot.term
        self.entries = []
        self.live = {entry.index: entry for entry in snapshot.live}
        self._members = [snapshot.members]
        self._members_from = [int(snapshot.index)]
        self.stable = snapshot.index
