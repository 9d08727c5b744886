"""One member of a Raft group, without I/O: inputs go in, a `Ready` comes out.

    step(message)   from another member         ready()    work to write, send, apply; or None
    tick()          one tick has passed         advance()  that work is done
    propose(data)   commands, if this leads     read()     a linearizable read

`leveret.cluster.raft` describes the duties of the host. The parts of the algorithm are `election`,
`replication`, `snapshot_transfer`, `reads`, `sleep` and `membership`. This module dispatches inputs
to them by kind and term, and keeps the order of the output.

Asserts are Raft's own invariants. They stay on: a member that breaks one must stop.
"""

from mypy_extensions import i64

from leveret.cluster.errors import (
    BusyError,
    NotLeaderError,
)
from leveret.cluster.raft import membership
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.election import (
    on_pre_vote,
    on_timeout_now,
    on_vote,
    on_vote_reply,
    start_pre_vote,
)
from leveret.cluster.raft.entry import COMMAND, NOBODY, Entry
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REFUSAL,
    APPEND_REPLY,
    COMMIT,
    GRANTED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    READ,
    READ_REPLY,
    SLEEP,
    SLEEP_REPLY,
    SNAPSHOT_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
    is_of_leader,
)
from leveret.cluster.raft.reads import answer_reads, begin_round, on_read, on_read_reply
from leveret.cluster.raft.reads import read as begin_read
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.replication import (
    append_own,
    broadcast_append,
    broadcast_commit,
    broadcast_heartbeat,
    maybe_commit,
    on_append,
    on_append_refusal,
    on_append_reply,
    on_heartbeat,
    on_heartbeat_reply,
)
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.sleep import (
    begin_sleep,
    call_leader,
    on_sleep,
    on_sleep_reply,
    send_sleeps,
    wake,
)
from leveret.cluster.raft.snapshot import Snapshot
from leveret.cluster.raft.snapshot_transfer import on_snapshot, on_snapshot_reply
from leveret.cluster.raft.state import LEADER, State
from leveret.cluster.raft.stored import Stored


class Raft(State):
    """One member of a group; see the module docstring."""

    def __init__(self, config: Config, stored: Stored, seed: i64) -> None:
        super().__init__(config, stored, Rng(seed))
        self._under_way: Ready | None = None
        # State that the last `Ready` had to write.
        self._written_term: i64 = self.term
        self._written_vote: i64 = self.vote
        self._written_commit: i64 = self.commit

    def tick(self) -> None:
        """Advance the clock by one tick."""
        assert not self.is_asleep
        self.elapsed += 1
        if self.role == LEADER:
            self._tick_leader()
        elif self.elapsed >= self.timeout:
            if self.may_lead():
                start_pre_vote(self)
            else:
                self._miss_leader()

    def _miss_leader(self) -> None:
        """Wake the leader: it may be asleep, and a non-voter cannot start an election."""
        self.elapsed = 0
        self.draw_timeout()
        call_leader(self)

    def _tick_leader(self) -> None:
        if self.elapsed >= self.config.election_ticks:
            self.elapsed = 0
            self.transfer_target = NOBODY  # the transfer has timed out
            if not self._hears_quorum():
                self.become_follower(self.term, NOBODY)
                return
            if self.is_drowsy:
                wake(self, 0)  # at least one follower does not answer
        self.heartbeat_elapsed += 1
        if self.heartbeat_elapsed >= self.config.heartbeat_ticks:
            if self.is_drowsy:
                send_sleeps(self)
            else:
                broadcast_heartbeat(self)

    def _hears_quorum(self) -> bool:
        """Return True if a majority was heard since the last check, and begin the next check."""
        count: i64 = 0
        for node, progress in self.progress.items():
            is_voter = self.log.members().is_voter(node)
            if is_voter and (progress.is_active or progress.is_asleep or node == self.node):
                count += 1
            progress.is_active = False
        return self.has_quorum(count)

    def step(self, message: Message) -> None:
        """Handle a message. Messages of an older incarnation of the group are ignored."""
        if message.group != self.group or message.target != self.node:
            return
        if message.source == self.node:
            return
        if message.kind == PRE_VOTE:
            on_pre_vote(self, message)
            return
        if message.term > self.term and not self._follow_term(message):
            return
        if message.term < self.term:
            self._answer_late(message)
        elif self.role == LEADER:
            self._step_leader(message)
        else:
            self._step_follower(message)

    def _follow_term(self, message: Message) -> bool:
        """Move to a later term; return True if the message is to be processed."""
        kind = message.kind
        if kind == VOTE and message.context == 0 and (self.is_in_lease() or self.role == LEADER):
            return False
        if kind == PRE_VOTE_REPLY and message.context == GRANTED:
            on_vote_reply(self, message)  # a reply carries the term that was asked for
            return False
        self.become_follower(message.term, message.source if is_of_leader(kind) else NOBODY)
        return True

    def _answer_late(self, message: Message) -> None:
        """Tell a leader or candidate of an older term the current term; ignore other messages."""
        kind = message.kind
        if is_of_leader(kind):
            self.send(self.message(HEARTBEAT_REPLY, message.source))
        elif kind == VOTE:
            self.send(self.message(VOTE_REPLY, message.source))

    def _step_leader(self, message: Message) -> None:
        kind = message.kind
        if kind == APPEND_REPLY:
            if on_append_reply(self, message):
                self._on_committed()
        elif kind == HEARTBEAT_REPLY:
            on_heartbeat_reply(self, message)
            answer_reads(self)
        elif kind == APPEND_REFUSAL:
            on_append_refusal(self, message)
        elif kind == SNAPSHOT_REPLY:
            on_snapshot_reply(self, message)
        elif kind == READ:
            on_read(self, message)
        elif kind == VOTE:
            on_vote(self, message)
        elif kind == SLEEP_REPLY:
            on_sleep_reply(self, message)
        else:
            assert not is_of_leader(kind), "two leaders in one term"

    def _step_follower(self, message: Message) -> None:
        kind = message.kind
        if is_of_leader(kind):
            self._on_leader(message)
        elif kind == VOTE:
            on_vote(self, message)
        elif kind == VOTE_REPLY or kind == PRE_VOTE_REPLY:
            on_vote_reply(self, message)
        elif kind == TIMEOUT_NOW:
            on_timeout_now(self)
        elif kind == READ_REPLY:
            on_read_reply(self, message)

    def _on_leader(self, message: Message) -> None:
        """Handle a message of this term's leader."""
        if self.leader != message.source:
            assert self.leader == NOBODY, "two leaders in one term"
            self.become_follower(self.term, message.source)
        self.elapsed = 0
        kind = message.kind
        if kind == APPEND:
            on_append(self, message)
        elif kind == COMMIT:
            self.commit_to(message.commit)
        elif kind == HEARTBEAT:
            on_heartbeat(self, message)
        elif kind == SLEEP:
            on_sleep(self, message)
        else:
            on_snapshot(self, message)

    def _on_committed(self) -> None:
        """Handle a higher commit index of the leader."""
        broadcast_commit(self)
        begin_round(self)
        membership.on_members_committed(self)

    def propose(self, commands: list[bytes]) -> i64:
        """Append commands to the log, and return the index of the first."""
        if self.role != LEADER:
            raise NotLeaderError(self.leader)
        if self.transfer_target != NOBODY:
            raise BusyError("another node is about to lead")
        if self.uncommitted_bytes > self.config.uncommitted_bytes_max:
            raise BusyError("too many bytes are not committed yet")
        first = self.log.last_index() + 1
        index = first
        entries: list[Entry] = []
        for command in commands:
            entries.append(Entry(index, self.term, COMMAND, command))
            index += 1
        append_own(self, entries)
        broadcast_append(self)
        return first

    def read(self, number: i64) -> None:
        """Begin a read. A later `Ready` answers it by this number, or it gets no answer."""
        begin_read(self, number)

    def add_non_voter(self, node: i64) -> i64:
        return membership.add_non_voter(self, node)

    def promote(self, node: i64) -> i64:
        return membership.promote(self, node)

    def remove(self, node: i64) -> i64:
        return membership.remove(self, node)

    def transfer(self, target: i64) -> None:
        membership.transfer(self, target)

    def compact(self, state: bytes, live: list[int]) -> Snapshot:
        """Take a snapshot with the machine's state as of the last applied entry."""
        if self.log.unsaved is not None:
            raise BusyError("another snapshot is not written yet")
        trailing = max(self.config.trailing, self._behind_snapshots())
        return self.log.compact(self.applied, state, live, trailing)

    def _behind_snapshots(self) -> i64:
        """Return how many entries followers need that are receiving a snapshot.

        Without these entries the log would lack the continuation of the snapshot when it arrives.
        Under load such a follower would get one snapshot after the other.
        """
        behind: i64 = 0
        for progress in self.progress.values():
            if progress.snapshot is not None and progress.is_active:
                behind = max(behind, self.applied - progress.snapshot.index)
        return min(behind, self.config.trailing_max)

    def is_quiet(self) -> bool:
        """Return True if every member has committed everything, so that only heartbeats remain."""
        last = self.log.last_index()
        if self.commit != last or self.applied != last or self.reads or self.outbox:
            return False
        if self.transfer_target != NOBODY:
            return False
        for progress in self.progress.values():
            if progress.match != last:
                return False
        return self.role == LEADER or self.leader != NOBODY

    def begin_sleep(self) -> None:
        """Ask the followers to sleep, and sleep when all have agreed.

        The host must know that all members are alive.
        """
        begin_sleep(self)

    def wake(self, silent_ticks: i64) -> None:
        """Wake up. `silent_ticks` is the time since this follower heard its leader."""
        wake(self, silent_ticks)

    def call_leader(self) -> None:
        """Wake the leader, too."""
        call_leader(self)

    def ready(self) -> Ready | None:
        """Return the next work for the host; None if there is none, or the last is not done."""
        if self._under_way is not None or not self.has_work():
            return None
        ready = Ready(self.term, self.vote, self.commit)
        is_vote = self.term != self._written_term or self.vote != self._written_vote
        ready.snapshot = self.log.unsaved
        ready.is_received = self.log.is_received
        ready.entries = self.log.unstable()
        ready.must_sync = is_vote or ready.snapshot is not None or bool(ready.entries)
        # A commit index may be lost, because the leader sends it again. It is written only along
        # with other data.
        is_commit = ready.must_sync and self.commit != self._written_commit
        ready.is_changed = is_vote or is_commit
        ready.messages = self.outbox
        self.outbox = []
        ready.answers = self.answers
        self.answers = []
        ready.committed = self._committed()
        self._written_term = self.term
        self._written_vote = self.vote
        if is_commit:
            self._written_commit = self.commit
        self._under_way = ready
        return ready

    def has_work(self) -> bool:
        """Return True if there is work, apart from the `Ready` that is not done yet."""
        if self.outbox or self.answers or self.applying < self.commit:
            return True
        if self.log.stable < self.log.last_index() or self.log.unsaved is not None:
            return True
        return self.term != self._written_term or self.vote != self._written_vote

    def _committed(self) -> list[Entry]:
        count = min(self.commit - self.applying, self.config.apply_count_max)
        if count == 0:
            return []
        entries = self.log.entries
        at = self.applying - self.log.base_index
        assert at >= 0
        self.applying += count
        return entries[at : at + count]

    def advance(self, ready: Ready) -> None:
        """Note that all work of `ready` is done: written, synced, sent and applied."""
        assert ready is self._under_way
        self._under_way = None
        if ready.snapshot is not None:
            if self.log.unsaved is ready.snapshot:
                self.log.unsaved = None
            if ready.is_received:
                self.applied = max(self.applied, ready.snapshot.index)
        if ready.committed:
            self.applied = max(self.applied, ready.committed[-1].index)
        if ready.entries:
            last = ready.entries[-1]
            self.log.stable_to(last.index, last.term)
            if self.role == LEADER:
                self._count_own()

    def _count_own(self) -> None:
        """Count the leader's own entries once they are synced, like those of every member."""
        own = self.progress.get(self.node)
        if own is not None and own.on_match(self.log.stable) and maybe_commit(self):
            self._on_committed()
