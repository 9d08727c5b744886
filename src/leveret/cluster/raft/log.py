"""The log of one member, in memory.

    live entries … │ base │ base+1 … stable │ stable+1 … last │
    needed by the  │      │ synced          │ to be written   │
    machine only   └ removed, its term is known

`entries` are the entries after `base_index`, without gaps. A snapshot moves the base forward;
entries before the base that the machine still needs stay in `live`. Entries after `stable` must be
written: a `Ready` carries them, and `stable_to` is called when they are synced.

The members in force are those of the newest CONFIG entry, committed or not, as in the Raft paper.
So the log keeps every membership that could become valid again when entries are truncated.

Invariants: base_index <= stable <= last; terms never decrease; entries are truncated only where
they conflict.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import CONFIG, Entry, Members, decode_members
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored


class Log:
    """Entries by index, and how far they are synced."""

    def __init__(self, stored: Stored) -> None:
        snapshot = stored.snapshot
        self.snapshot = snapshot  # the newest snapshot, taken here or received
        self.unsaved: Snapshot | None = None  # the newest snapshot, while it must be written
        self.is_received = False  # the unsaved snapshot came from the leader
        self.base_index: i64 = 0 if snapshot is None else snapshot.index
        self.base_term: i64 = 0 if snapshot is None else snapshot.term
        self.entries: list[Entry] = []
        self.live: dict[int, Entry] = {}
        if snapshot is not None:
            for entry in snapshot.live:
                self.live[entry.index] = entry
        # Members and the index from which on they are in force, ascending.
        self._members_from: list[int] = [int(self.base_index)]
        self._members: list[Members] = [stored.members]
        for entry in stored.entries:
            self._add(entry)
        self.stable: i64 = self.last_index()

    def last_index(self) -> i64:
        return self.base_index + len(self.entries)

    def last_term(self) -> i64:
        return self.entries[-1].term if self.entries else self.base_term

    def term(self, index: i64) -> i64:
        """Return the term of an entry, from the base on."""
        assert self.base_index <= index <= self.last_index()
        if index == self.base_index:
            return self.base_term
        return self.entries[index - self.base_index - 1].term

    def matches(self, index: i64, term: i64) -> bool:
        """Return True if this index has an entry of this term, or is the base with this term."""
        if index < self.base_index or index > self.last_index():
            return False
        return self.term(index) == term

    def is_up_to_date(self, index: i64, term: i64) -> bool:
        """Return True if a log that ends with this entry is at least as up to date (§5.4.1)."""
        last_term = self.last_term()
        return term > last_term or (term == last_term and index >= self.last_index())

    def entry(self, index: i64) -> Entry | None:
        """Return an entry after the base, or a live entry before it."""
        if index > self.base_index:
            at = index - self.base_index - 1
            return self.entries[at] if at < len(self.entries) else None
        return self.live.get(index)

    def slice(self, first: i64, count_max: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `first` on, within both limits; at least one entry."""
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
        """Return the size of all entries after one index, up to another."""
        total: i64 = 0
        for at in range(after - self.base_index, last - self.base_index):
            total += self.entries[at].size_bytes()
        return total

    def find_match_hint(self, index: i64, term: i64) -> i64:
        """Return the last index, at most `index`, with a term of at most `term`."""
        at = min(index, self.last_index())
        while at > self.base_index and self.term(at) > term:
            at -= 1
        return at

    def members(self) -> Members:
        """Return the members in force."""
        return self._members[-1]

    def members_index(self) -> i64:
        """Return the index since which the members are in force."""
        return self._members_from[-1]

    def members_at(self, index: i64) -> Members:
        """Return the members as of an entry, from the base on."""
        at = len(self._members) - 1
        while at > 0 and self._members_from[at] > index:
            at -= 1
        return self._members[at]

    def _add(self, entry: Entry) -> None:
        assert entry.index == self.last_index() + 1
        assert entry.term >= self.last_term()
        self.entries.append(entry)
        if entry.kind == CONFIG:
            self._members_from.append(int(entry.index))
            self._members.append(decode_members(entry.data))

    def append(self, entries: list[Entry]) -> None:
        """Append entries that follow the last one."""
        for entry in entries:
            self._add(entry)

    def merge(self, entries: list[Entry], commit: i64) -> None:
        """Merge entries of the leader. The entry before the first one matches (§5.3).

        Matching entries stay, with all entries after them: the message may be old, and the entries
        after it may have been acknowledged since. Only an entry of another term truncates the log.
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
        """Remove the entries from `first` on."""
        assert first > self.base_index
        del self.entries[first - self.base_index - 1 :]
        while len(self._members) > 1 and self._members_from[-1] >= first:
            self._members.pop()
            self._members_from.pop()
        self.stable = min(self.stable, first - 1)

    def unstable(self) -> list[Entry]:
        """Return the entries to write. The first one replaces all stored entries from there on."""
        at = self.stable - self.base_index
        return self.entries[at:] if at < len(self.entries) else []

    def stable_to(self, index: i64, term: i64) -> None:
        """Note that entries up to this one are synced, unless it was truncated meanwhile."""
        if index > self.stable and self.matches(index, term):
            self.stable = index

    def compact(self, index: i64, state: bytes, live: list[int], trailing: i64) -> Snapshot:
        """Begin the log with a snapshot of the machine at `index`, which is applied.

        The last `trailing` entries before `index` stay as well, for slow followers.
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
        """Move the base, and keep only the `kept` entries before it."""
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
        """Replace the whole log by a snapshot of the leader."""
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
