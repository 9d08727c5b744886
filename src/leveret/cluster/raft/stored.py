"""The state that a member starts with: everything it had synced when it stopped."""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY, Entry, Members
from leveret.cluster.raft.snapshot import Snapshot


class Stored:
    """The state on disk. A new member has only the first members of the group.

    A node that joins a group starts without members: the leader tells it.
    """

    def __init__(self, members: Members) -> None:
        self.members = members  # members before the first of `entries`
        self.term: i64 = 0
        self.vote: i64 = NOBODY
        self.commit: i64 = 0  # known to be committed; may be older than the real commit index
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []  # entries after the snapshot, or from 1 on
