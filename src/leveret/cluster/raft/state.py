"""The state of one member, and the few moves that every part of Raft makes with it.

`election`, `replication`, `snapshots`, `reads`, `sleep` and `membership` are functions over a
`State`; `core` decides which of them an input goes to. The fields are here so that one place says
what each means.

Invariants: the term never falls; in one term the vote is given once; commit never falls and never
passes the end of the log; applied <= handed <= commit.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.chance import Chance
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.log import Log
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.ready import Answer
from leveret.cluster.raft.snapshot import Incoming
from leveret.cluster.raft.stored import Stored

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3

ROLE_NAMES: Final = ("follower", "pre-candidate", "candidate", "leader")


class Waiting:
    """A read that waits until a majority has said that this node still leads."""

    def __init__(self, source: i64, number: i64) -> None:
        self.source: i64 = source  # the member that asked
        self.number: i64 = number
        self.index: i64 = 0  # committed when it came
        self.round: i64 = 0  # answered when a majority has answered this round; 0: not begun


class State:
    """One member of one group."""

    def __init__(self, config: Config, stored: Stored, chance: Chance) -> None:
        config.check()
        self.config = config
        self.node: i64 = config.node
        self.group: i64 = config.group
        self.chance = chance
        # Durable
        self.term: i64 = stored.term
        self.vote: i64 = stored.vote
        self.log = Log(stored)
        # How far the log is known to be committed, handed out to be applied, and applied
        self.commit: i64 = max(stored.commit, self.log.base_index)
        self.handed: i64 = self.log.base_index
        self.applied: i64 = self.log.base_index
        assert self.commit <= self.log.last_index()
        # Role
        self.role: i64 = FOLLOWER
        self.leader: i64 = NOBODY
        self.votes: dict[int, bool] = {}  # who has answered a candidate, and how
        # Ticks
        self.elapsed: i64 = 0  # since the leader was heard of; as leader, since the quorum was
        self.beat_elapsed: i64 = 0
        self.timeout: i64 = 0  # how many ticks without a leader this member bears
        # As leader
        self.progress: dict[int, Progress] = {}
        self.uncommitted_bytes: i64 = 0  # of all entries after `commit`
        self.transfer_target: i64 = NOBODY
        self.reads: list[Waiting] = []
        self.read_round: i64 = 0
        # Sleep
        self.is_asleep = False  # not ticked; its host decides when to wake it
        self.is_drowsy = False  # as leader: asks its followers to sleep
        self.sleep_round: i64 = 0  # which counts how often it has asked
        self.may_sleep = False  # as follower: its host hears the leader's node
        self.incarnation: i64 = 0  # of the node, as its host says
        # Work for the host
        self.outbox: list[Message] = []
        self.answers: list[Answer] = []
        self.incoming: Incoming | None = None
        self.draw_timeout()

    def draw_timeout(self) -> None:
        ticks = self.config.election_ticks
        self.timeout = ticks + self.chance.below(ticks)

    def message(self, kind: i64, target: i64) -> Message:
        """A message of the present term; the caller fills it and sends it."""
        return Message(kind, self.node, target, self.group, self.term)

    def send(self, message: Message) -> None:
        assert message.target != self.node
        self.outbox.append(message)

    def become_follower(self, term: i64, leader: i64) -> None:
        """Follow, in this term or a later one. Whatever a leader or candidate had is over."""
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
        """Whether a leader was heard of so recently that there is no need for another."""
        return self.leader != NOBODY and self.elapsed < self.config.election_ticks

    def commit_to(self, index: i64) -> bool:
        """All up to `index` is committed; whether that is news."""
        if index <= self.commit:
            return False
        assert index <= self.log.last_index(), "committed beyond the end of the log"
        self.commit = index
        return True

    def may_lead(self) -> bool:
        """Whether this member is a voter, and so may ask for votes.

        So may one whose removal is not committed (§4.2.2 of Raft's dissertation): perhaps nobody
        else who lives has all that a majority has. Its own vote does not count.
        """
        log = self.log
        if log.members().is_voter(self.node):
            return True
        is_removal_open = log.members_index() > self.commit
        return is_removal_open and log.members_at(self.commit).is_voter(self.node)

    def has_committed_own_term(self) -> bool:
        """Whether a leader knows all that is committed: only then has it an entry of its own."""
        return self.log.term(self.commit) == self.term

    def has_quorum(self, count: i64) -> bool:
        return count >= self.log.members().quorum()
