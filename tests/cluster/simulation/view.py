"""The state that a member must find on its disk when it starts: everything reported as synced.

It is computed from the writes that the member asked for, independently of the store, so that
neither can hide a fault of the other.
"""

from leveret.cluster.raft.entry import Entry
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.stored import Stored


class View:
    """The state of one member on disk."""

    def __init__(self, stored: Stored) -> None:
        self.term: int = stored.term
        self.vote: int = stored.vote
        self.commit: int = stored.commit
        self.snapshot: Snapshot | None = stored.snapshot
        self.first: int = 1 if stored.snapshot is None else stored.snapshot.index + 1
        self.entries: list[Entry] = list(stored.entries)

    def apply(self, ready: Ready) -> None:
        """This is synced."""
        if ready.is_changed:
            self.term, self.vote, self.commit = ready.term, ready.vote, ready.commit
        snapshot = ready.snapshot
        if snapshot is not None:
            keep = [] if ready.is_received else self.entries
            self.entries = [entry for entry in keep if entry.index > snapshot.index]
            self.snapshot = snapshot
            self.first = snapshot.index + 1
        if ready.entries:
            del self.entries[ready.entries[0].index - self.first :]
            self.entries += ready.entries

    def differs(self, stored: Stored) -> str:
        """What a start has found otherwise; the commit index may lag behind."""
        if (stored.term, stored.vote) != (self.term, self.vote):
            return f"term and vote {self.term}, {self.vote}: {stored.term}, {stored.vote}"
        if _show(stored.snapshot) != _show(self.snapshot):
            return f"snapshot {_show(self.snapshot)}: {_show(stored.snapshot)}"
        found = [_mark(entry) for entry in stored.entries]
        if found != [_mark(entry) for entry in self.entries]:
            return f"{len(self.entries)} entries from {self.first} on: {found}"
        return ""


def _mark(entry: Entry) -> tuple[int, int, bytes]:
    return entry.index, entry.term, entry.data


def _show(snapshot: Snapshot | None) -> object:
    if snapshot is None:
        return None
    live = [_mark(entry) for entry in snapshot.live]
    return snapshot.index, snapshot.term, snapshot.members.everyone(), snapshot.state, live
