"""What a member asks of its host: to write and sync, then to send, apply and answer.

The order is the whole point. Term, vote, snapshot and entries are synced before a message leaves
that lets another node rely on them; see `leveret.cluster.raft`.
"""

from mypy_extensions import i64

from leveret.cluster.raft.entry import Entry
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.snapshot import Snapshot


class Answer:
    """A read may be served, once all up to `index` is applied."""

    def __init__(self, number: i64, index: i64) -> None:
        self.number: i64 = number  # the reader's
        self.index: i64 = index


class Ready:
    """The work of one turn."""

    def __init__(self, term: i64, vote: i64, commit: i64) -> None:
        self.term: i64 = term
        self.vote: i64 = vote
        self.commit: i64 = commit
        # To be written, in this order
        self.is_changed = False  # term, vote or commit
        self.snapshot: Snapshot | None = None
        self.is_received = False  # whether the snapshot came from the leader
        self.entries: list[Entry] = []  # they replace what storage has from the first of them on
        self.must_sync = False  # before anything below
        # To be done after that
        self.messages: list[Message] = []
        self.committed: list[Entry] = []
        self.answers: list[Answer] = []

    def has_writes(self) -> bool:
        return self.is_changed or self.snapshot is not None or bool(self.entries)
