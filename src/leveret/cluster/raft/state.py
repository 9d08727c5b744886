"""The state of one member, and the few operations that every part of Raft shares.

`election`, `replication`, `catch_up` and `membership` are functions over a `State`; `core`
dispatches inputs to them. The fields are declared here, so that one place explains them all.

Messages that rely on nothing unsynced are added to `unsent` at once: those of a leader, pre-votes,
replies to heartbeats. Votes and replies that promise something wait until the state that they rely
on is synced.

Invariants: the term never falls; a member votes once in a term; commit never falls and never passes
the end of the log; blocks up to `matched` are those of the leader.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.config import Config
from leveret.cluster.raft.log import RaftLog
from leveret.cluster.raft.members import NOBODY
from leveret.cluster.raft.messages import APPEND_REPLY, Message
from leveret.cluster.raft.progress import Progress
from leveret.cluster.raft.ready import ReadRequest
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.status import Counters
from leveret.cluster.raft.stored import Stored

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3

ROLE_NAMES: Final = ("follower", "pre-candidate", "candidate", "leader")


class State:
    """The state of one member."""

    def __init__(self, config: Config, stored: Stored, rng: Rng) -> None:
        config.check()
        self.config = config
        self.node: i64 = config.node
        self.rng = rng
        # Durable state. `hard` is the newest, `synced_hard` is on disk.
        self.hard = stored.hard.copy()
        self.synced_hard = stored.hard.copy()
        assert self.hard.may_vote or self.hard.losses > 0
        self.log = RaftLog(stored)
        if self.log.last_term() > self.hard.term:
            # Power failed after the blocks were on disk, and before the term was.
            self.hard.term = self.log.last_term()
            self.hard.vote = NOBODY
        self.needs_copy = stored.needs_copy
        assert not (self.needs_copy and self.hard.may_vote)
        self.commit: i64 = max(stored.commit, self.log.base_index)
        assert self.commit <= self.log.last_index
        # Role.
        self.role: i64 = FOLLOWER
        self.leader: i64 = NOBODY
        self.votes: dict[int, bool] = {}  # replies to a candidate, by member
        self.matched: i64 = 0  # as follower: the log agrees with this term's leader up to here
        # Ticks.
        self.ticks: i64 = 0  # since the start
        self.elapsed: i64 = 0  # since the leader was heard, or a role began
        self.heartbeat_elapsed: i64 = 0
        self.timeout: i64 = 0  # election timeout of this member
        self.sync_ticks: i64 = 0  # for how long the oldest sync of this node is under way
        self.has_lost_link = False  # the link to the leader was closed, and no leader heard since
        self.is_drained = False  # an operator wants other members to lead
        self.wanted_until: i64 = 0  # until then, a candidate with an older log may need this member
        # As leader.
        self.progress: dict[int, Progress] = {}
        self.has_held = False  # blocks are held back from a follower: `replication.send_held`
        self.uncommitted_bytes: i64 = 0  # size of all blocks in memory after `commit`
        self.transfer_target: i64 = NOBODY
        self.transfer_elapsed: i64 = 0
        # Work for the host.
        self.unsent: list[Message] = []
        self.waiting: list[Message] = []  # rely on state that is not synced
        self.reads: list[ReadRequest] = []
        self.copies: list[int] = []  # followers that need a copy of the directory
        self.counters = Counters()
        self.draw_timeout()

    @property
    def term(self) -> i64:
        return self.hard.term

    @property
    def vote(self) -> i64:
        return self.hard.vote

    def draw_timeout(self) -> None:
        """Draw the election timeout."""
        ticks = self.config.election_ticks
        self.timeout = ticks + self.rng.below(ticks)

    def draw_retry(self) -> None:
        """Draw the time until the next attempt, when no leader is known to exist."""
        self.timeout = 1 + self.rng.below(self.config.election_ticks)

    def misses_leader(self) -> bool:
        """Return True if the leader was silent for so long that this member stands for election.

        A drained member gives all others time to win first. It still leads if no other one can,
        because it may be the only living member that has all committed blocks.
        """
        wait = self.timeout
        if self.is_drained:
            wait += self.config.drained_ticks
        return self.elapsed >= wait

    def message(self, kind: i64, target: i64) -> Message:
        """Return a message of the current term; the caller fills it in and sends it."""
        return Message(kind, self.node, target, self.hard.term)

    def send(self, message: Message) -> None:
        """Send a message that relies on nothing unsynced."""
        assert message.target != self.node
        self.unsent.append(message)

    def send_synced(self, message: Message, index: i64) -> None:
        """Send a message when term, vote and all blocks up to `index` are synced.

        A member whose disk hangs gets the same requests again and again. So a message replaces an
        older one of its kind for the same member.
        """
        assert message.target != self.node
        if self.hard.equals(self.synced_hard) and index <= self.log.synced_index:
            self.unsent.append(message)
            return
        for at in range(len(self.waiting)):
            other = self.waiting[at]
            if other.kind == message.kind and other.target == message.target:
                if message.kind == APPEND_REPLY:
                    message.index = max(message.index, other.index)
                self.waiting[at] = message
                return
        self.waiting.append(message)

    def set_term(self, term: i64, vote: i64) -> None:
        """Enter a later term. Drop the replies of earlier terms."""
        assert term > self.hard.term
        self.hard.term = term
        self.hard.vote = vote
        self.matched = 0
        self.waiting = []

    def become_follower(self, term: i64, leader: i64) -> None:
        """Follow, in this term or a later one, and drop the state of a leader or candidate."""
        assert term >= self.hard.term
        if term > self.hard.term:
            self.set_term(term, NOBODY)
        if self.role == LEADER:
            self.matched = 0
        self.role = FOLLOWER
        self.leader = leader
        self.elapsed = 0
        self.has_lost_link = False
        self.draw_timeout()
        self.votes.clear()
        self.progress.clear()
        self.reads = []
        self.copies = []
        self.has_held = False
        self.transfer_target = NOBODY

    def is_in_lease(self) -> bool:
        """Return True if a leader was heard so recently that another is not needed."""
        return self.leader != NOBODY and self.elapsed < self.config.election_ticks

    def is_disk_late(self) -> bool:
        """Return True if a sync of this node takes longer than an election timeout."""
        return self.sync_ticks >= self.config.election_ticks

    def is_holding(self) -> bool:
        """Return True if heartbeats must not leave, because the disk of this node hangs."""
        return self.sync_ticks >= self.config.heartbeat_ticks

    def commit_to(self, index: i64) -> bool:
        """Commit everything up to `index`; return True if that is new."""
        if index <= self.commit:
            return False
        assert index <= self.log.last_index, "committed beyond the end of the log"
        self.commit = index
        self.log.forget_members(index)
        return True

    def may_lead(self) -> bool:
        """Return True if this member may start an election: it is a voter, or it is needed.

        A candidate with an older log may count on the vote of this member, by other members than
        those of this log: this log has a removal, or the other one has a promotion, that is not
        committed. This member must refuse, so it may be the only one that can win (§4.2.2 of the
        Raft dissertation). Its own vote does not count, and it leads only until a block of its
        term is committed.
        """
        if not self.hard.may_vote or self.is_disk_late():
            return False
        return self.log.members().is_voter(self.node) or self.ticks < self.wanted_until

    def is_active(self, progress: Progress) -> bool:
        """Return True if a follower was heard within the election timeout."""
        return self.ticks - progress.heard_tick < self.config.election_ticks

    def has_committed_own_term(self) -> bool:
        """Return True if a block of this term is committed: the leader knows the commit index."""
        return self.log.term(self.commit) == self.hard.term

    def has_quorum(self, count: i64) -> bool:
        return count >= self.log.members().quorum()
