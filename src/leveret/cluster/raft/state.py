"""The state of one member, and the few operations that every part of Raft shares.

`election`, `replication`, `snapshot_transfer`, `reads`, `sleep` and `membership` are functions over
a `State`; `core` dispatches inputs to them. The fields are declared here, so that one place
explains them all.

Invariants: the term never decreases; a member votes once in a term; commit never decreases and
never passes the end of the log; applied <= applying <= commit.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.config import Config
from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.log import Log
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.ready import ReadAnswer
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.snapshot import IncomingSnapshot
from leveret.cluster.raft.stored import Stored

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3

ROLE_NAMES: Final = ("follower", "pre-candidate", "candidate", "leader")


class PendingRead:
    """A read that waits until a majority confirms that this node still leads."""

    def __init__(self, source: i64, number: i64) -> None:
        self.source: i64 = source  # the member that asked
        self.number: i64 = number
        self.index: i64 = 0  # commit index when the read arrived
        self.round: i64 = 0  # the round of heartbeats that confirms it; 0: not begun


class State:
    """The state of one member of one group."""

    def __init__(self, config: Config, stored: Stored, rng: Rng) -> None:
        config.check()
        self.config = config
        self.node: i64 = config.node
        self.group: i64 = config.group
        self.rng = rng
        # Durable state.
        self.term: i64 = stored.term
        self.vote: i64 = stored.vote
        self.log = Log(stored)
        # Last entry that is known to be committed, in a `Ready` to be applied, and applied.
        self.commit: i64 = max(stored.commit, self.log.base_index)
        self.applying: i64 = self.log.base_index
        self.applied: i64 = self.log.base_index
        assert self.commit <= self.log.last_index()
        # Role.
        self.role: i64 = FOLLOWER
        self.leader: i64 = NOBODY
        self.votes: dict[int, bool] = {}  # replies to a candidate, by member
        # Ticks.
        # Ticks since the leader was heard; as leader, since the last check of the quorum.
        self.elapsed: i64 = 0
        self.heartbeat_elapsed: i64 = 0
        self.timeout: i64 = 0  # election timeout of this member
        # As leader.
        self.progress: dict[int, Progress] = {}
        self.uncommitted_bytes: i64 = 0  # size of all entries after `commit`
        self.transfer_target: i64 = NOBODY
        self.reads: list[PendingRead] = []
        self.read_round: i64 = 0
        # Sleep.
        self.is_asleep = False  # gets no ticks; its host decides when to wake it
        self.is_drowsy = False  # as leader: is asking its followers to sleep
        self.sleep_round: i64 = 0  # number of sleep requests so far
        self.may_sleep = False  # as follower: its host hears the leader's node
        self.incarnation: i64 = 0  # incarnation of the node, set by its host
        # Work for the host.
        self.outbox: list[Message] = []
        self.answers: list[ReadAnswer] = []
        self.incoming: IncomingSnapshot | None = None
        self.draw_timeout()

    def draw_timeout(self) -> None:
        ticks = self.config.election_ticks
        self.timeout = ticks + self.rng.below(ticks)

    def message(self, kind: i64, target: i64) -> Message:
        """Return a message of the current term; the caller fills it in and sends it."""
        return Message(kind, self.node, target, self.group, self.term)

    def send(self, message: Message) -> None:
        assert message.target != self.node
        self.outbox.append(message)

    def become_follower(self, term: i64, leader: i64) -> None:
        """Follow, in this term or a later one, and drop the state of a leader or candidate."""
        assert term >= self.term
        if term > self.term:
            self.term = term
            self.vote = NOBODY
            self.incoming = None  # chunks of two leaders are never mixed
        self.role = FOLLOWER
        self.leader = leader
        self.elapsed = 0
        self.is_asleep = False
        self.is_drowsy = False
        self.draw_timeout()
        self.votes.clear()
        self.progress.clear()
        self.reads = []
        self.transfer_target = NOBODY

    def is_in_lease(self) -> bool:
        """Return True if a leader was heard so recently that another is not needed."""
        return self.leader != NOBODY and self.elapsed < self.config.election_ticks

    def commit_to(self, index: i64) -> bool:
        """Commit everything up to `index`; return True if that is new."""
        if index <= self.commit:
            return False
        assert index <= self.log.last_index(), "committed beyond the end of the log"
        self.commit = index
        return True

    def may_lead(self) -> bool:
        """Return True if this member is a voter, and so may start an election.

        A member whose removal is not committed may start one, too (§4.2.2 of the Raft
        dissertation): it may be the only living member that has everything a majority has. Its own
        vote does not count then.
        """
        log = self.log
        if log.members().is_voter(self.node):
            return True
        is_removal_open = log.members_index() > self.commit
        return is_removal_open and log.members_at(self.commit).is_voter(self.node)

    def has_committed_own_term(self) -> bool:
        """Return True if an entry of this term is committed: the leader knows the commit index."""
        return self.log.term(self.commit) == self.term

    def has_quorum(self, count: i64) -> bool:
        return count >= self.log.members().quorum()
