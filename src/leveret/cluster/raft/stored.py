"""What a member begins with: all that it had synced when it stopped."""

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY, Entry, Members
from leveret.cluster.raft.snapshot import Snapshot


class Stored:
    """The state on disk. A new member has nothing but the members that the group begins with.

    A node that joins a group begins with no members at all: it waits to be told by the leader.
    """

    def __init__(self, members: Members) -> None:
        self.members = members  # before the first of `entries`
        self.term: i64 = 0
        self.vote: i64 = NOBODY
        self.commit: i64 = 0  # known to be committed; may lag behind
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []  # after the snapshot, or from 1 on
