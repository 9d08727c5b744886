"""Work for the host of a member: write and sync, then send, apply and answer.

The order matters. Term, vote, snapshot and entries are synced before a message is sent that lets
another node rely on them; see `leveret.cluster.raft`.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import Entry
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.snapshot import Snapshot


class ReadAnswer:
    """A read may be served, once everything up to `index` is applied."""

    def __init__(self, number: i64, index: i64) -> None:
        self.number: i64 = number  # the number that the reader chose
        self.index: i64 = index


class Ready:
    """The work of one turn."""

    def __init__(self, term: i64, vote: i64, commit: i64) -> None:
        self.term: i64 = term
        self.vote: i64 = vote
        self.commit: i64 = commit
        # To be written, in this order:
        self.is_changed = False  # term, vote or commit has changed
        self.snapshot: Snapshot | None = None
        self.is_received = False  # the snapshot came from the leader
        self.entries: list[Entry] = []  # they replace all stored entries from the first one on
        self.must_sync = False  # sync before the work below
        # To be done after that:
        self.messages: list[Message] = []
        self.committed: list[Entry] = []
        self.answers: list[ReadAnswer] = []

    def has_writes(self) -> bool:
        return self.is_changed or self.snapshot is not None or bool(self.entries)
