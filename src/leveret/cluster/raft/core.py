"""One member of the cluster's Raft group, without I/O: inputs go in, work for the host comes out.

    step(message)        from another member        ready()          to write and sync; or None
    tick(sync_ticks)     one tick has passed        advance(ready)   that is synced
    append(block)        a block of the leader      take_messages()  to send
    on_synced(…)         own blocks are synced      take_reads()     blocks to read for followers
    on_link_lost(node)   a connection was closed    take_copies()    followers that need a copy

`leveret.cluster.raft` describes the work of the host. The parts of the algorithm are `election`,
`replication`, `catch_up` and `membership`. This module dispatches inputs to them by kind and term,
and keeps the order of the output.

Asserts are Raft's own invariants. They stay on: a member that breaks one must stop. A message that
cannot be true raises `FalseMessageError` before it changes anything: the other node is wrong.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.errors import BusyError, FalseMessageError, NotLeaderError
from leveret.cluster.raft import membership
from leveret.cluster.raft.block import TERM, Block
from leveret.cluster.raft.catch_up import end_copy
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.election import (
    count_own_vote,
    on_link_lost,
    on_pre_vote,
    on_timeout_now,
    on_vote,
    on_vote_reply,
    start_pre_vote,
)
from leveret.cluster.raft.members import NOBODY, Member, Members
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REFUSAL,
    APPEND_REPLY,
    COMMIT,
    GRANTED,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
    is_of_leader,
)
from leveret.cluster.raft.progress import COPY
from leveret.cluster.raft.ready import ReadRequest, Ready
from leveret.cluster.raft.replication import (
    broadcast_append,
    broadcast_commit,
    broadcast_heartbeat,
    maybe_commit,
    maybe_send_timeout_now,
    maybe_vote_again,
    on_append,
    on_append_refusal,
    on_append_reply,
    on_heartbeat,
    on_heartbeat_reply,
    on_read,
    send_held,
    tell_receiving,
    trim_window,
)
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.state import FOLLOWER, LEADER, State
from leveret.cluster.raft.status import FollowerStatus, Status
from leveret.cluster.raft.stored import Stored

# An election raises the term by one. A false term that is followed stays for ever: later terms must
# be higher, and the largest one ends all elections. This limit makes that take a billion messages.
TERM_JUMP_MAX: Final = 1 << 32


class Raft(State):
    """One member; see the module docstring."""

    def __init__(self, config: Config, stored: Stored, seed: i64) -> None:
        super().__init__(config, stored, Rng(seed))
        self._under_way: Ready | None = None

    def tick(self, sync_ticks: i64 = 0) -> None:
        """Advance the clock by one tick.

        `sync_ticks` is for how many ticks the oldest sync of this node is under way.
        """
        self.ticks += 1
        self.elapsed += 1
        self.sync_ticks = sync_ticks
        if self.role == LEADER:
            self._tick_leader()
        elif self.misses_leader() or self._is_alone():
            if self.may_lead():
                start_pre_vote(self)
            else:
                self.elapsed = 0
                self.draw_timeout()

    def on_receiving(self) -> None:
        """Note that a large message of the leader is on its way, which heartbeats wait behind.

        So the leader is alive. This member tells it the same, as if a heartbeat had come.
        """
        if self.role == FOLLOWER and self.leader != NOBODY:
            self.elapsed = 0
            if self.ticks % self.config.heartbeat_ticks == 0:
                tell_receiving(self)

    def _is_alone(self) -> bool:
        """Return True if there is no other voter to wait for, and no election under way."""
        voters = self.log.members().voters
        return self.role == FOLLOWER and len(voters) == 1 and voters[0] == self.node

    def _tick_leader(self) -> None:
        if self.is_disk_late():
            membership.hand_over(self)
            return
        if self.is_holding():
            # Followers that get no heartbeats do not answer. Their silence does not count.
            for progress in self.progress.values():
                progress.heard_tick += 1
        if not self._hears_quorum():
            self.become_follower(self.term, NOBODY)
            return
        if self.transfer_target != NOBODY:
            self.transfer_elapsed += 1
            if self.transfer_elapsed >= self.config.election_ticks:
                self.transfer_target = NOBODY
                self.counters.transfers_failed += 1
        self.send_held()
        self.heartbeat_elapsed += 1
        if self.is_holding():
            return
        if self.heartbeat_elapsed >= self.config.heartbeat_ticks:
            broadcast_heartbeat(self)
        else:
            broadcast_commit(self)

    def _hears_quorum(self) -> bool:
        """Return True if a majority of voters was heard within the election timeout."""
        count: i64 = 0
        for node in self.log.members().voters:
            progress = self.progress.get(node)
            if node == self.node or (progress is not None and self.is_active(progress)):
                count += 1
        return self.has_quorum(count)

    def is_in_contact(self, within_ticks: i64) -> bool:
        """Return whether this leader has heard a majority within a time, by links that are open."""
        if self.role != LEADER or self.is_holding():
            return False
        count: i64 = 0
        for node in self.log.members().voters:
            progress = self.progress.get(node)
            if node == self.node:
                count += 1
            elif progress is not None and not progress.has_lost_link:
                count += self.ticks - progress.contact_tick <= within_ticks
        return self.has_quorum(count)

    def step(self, message: Message) -> None:
        """Handle a message of another member; raise `FalseMessageError` if it cannot be true."""
        if message.target != self.node or message.source == self.node:
            return
        if message.term > self.term + TERM_JUMP_MAX:
            raise FalseMessageError(f"term {message.term} cannot follow term {self.term}")
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
            reply = self.message(HEARTBEAT_REPLY, message.source)
            reply.context = self.hard.losses
            self.send(reply)
        elif kind == VOTE:
            self.send_synced(self.message(VOTE_REPLY, message.source), 0)

    def _step_leader(self, message: Message) -> None:
        kind = message.kind
        if kind == APPEND_REPLY:
            if on_append_reply(self, message):
                self._on_committed()
        elif kind == HEARTBEAT_REPLY:
            on_heartbeat_reply(self, message)
        elif kind == APPEND_REFUSAL:
            on_append_refusal(self, message)
        elif kind == VOTE:
            on_vote(self, message)
        elif is_of_leader(kind):
            raise FalseMessageError(f"two nodes lead in term {self.term}, and one is this node")

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

    def _on_leader(self, message: Message) -> None:
        """Handle a message of this term's leader."""
        if self.leader != message.source:
            if self.leader != NOBODY:
                raise FalseMessageError(f"two other nodes lead in term {self.term}")
            self.become_follower(self.term, message.source)
        self.elapsed = 0
        kind = message.kind
        if kind == APPEND:
            on_append(self, message)
        elif kind == COMMIT:
            self.commit_to(min(message.commit, self.matched))
        else:
            on_heartbeat(self, message)
        self._settle_follower()

    def _settle_follower(self) -> None:
        """Vote again if lost blocks are back, and drop synced blocks from memory."""
        maybe_vote_again(self)
        self.log.drop_to(self.log.synced_index)

    def _on_committed(self) -> None:
        """Handle a higher commit index of the leader."""
        trim_window(self)
        if self.transfer_target != NOBODY:
            maybe_send_timeout_now(self)
        membership.on_members_committed(self)

    def may_append(self) -> bool:
        """Return True if this member leads and is not handing over."""
        return self.role == LEADER and self.transfer_target == NOBODY

    def needs_term_block(self) -> bool:
        """Return True if this leader has not appended its TERM block yet."""
        return self.role == LEADER and self.log.last_term() != self.term

    def is_full(self) -> bool:
        """Return True if so much is not committed, or not synced here, that publishers must wait.

        While the own disk hangs, the others commit blocks that must stay in memory.
        """
        bytes_max = self.config.uncommitted_bytes_max
        if self.uncommitted_bytes >= bytes_max:
            return True
        return self.log.window_bytes >= bytes_max + self.config.window_bytes_max

    def append(self, block: Block) -> None:
        """Append a block of this leader, which its host writes and syncs by itself.

        `take_messages` then has it for the followers. It counts for this node after `on_synced`.
        """
        if self.role != LEADER:
            raise NotLeaderError(self.leader)
        if self.transfer_target != NOBODY:
            raise BusyError("another node is about to lead")
        assert block.term == self.term
        assert (block.kind == TERM) == self.needs_term_block(), "a term begins with its TERM block"
        if block.members is not None:
            membership.require_change(self)
            assert block.members.is_one_step_from(self.log.members())
        self.log.append(block)
        self.uncommitted_bytes += block.size_bytes()
        if block.members is not None:
            membership.sync_progress(self)

    def on_synced(self, index: i64, term: i64) -> None:
        """Note that this node has synced its own blocks up to this one."""
        self.log.synced_to(index, term)
        if self.role == LEADER:
            self._count_own()
        self._release()

    def _count_own(self) -> None:
        """Count the leader's own blocks once they are synced, like those of every member."""
        own = self.progress.get(self.node)
        if own is not None and own.on_match(self.log.synced_index) and maybe_commit(self):
            self._on_committed()
        elif self.role == LEADER:
            trim_window(self)

    def on_link_lost(self, node: i64) -> None:
        """Note that the connection to a node was closed. A silent connection is not lost."""
        on_link_lost(self, node)
        progress = self.progress.get(int(node))
        if progress is not None:
            progress.has_lost_link = True
        self.on_messages_lost(node)

    def on_messages_lost(self, node: i64) -> None:
        """Note that messages to a node may be lost: send again from what it is known to have."""
        progress = self.progress.get(int(node))
        if progress is not None and node != self.node and progress.state != COPY:
            progress.to_probe(progress.match + 1, self.ticks)

    def on_read(self, request: ReadRequest, blocks: list[Block]) -> None:
        """Take the blocks of a request; none if they are not in log files."""
        on_read(self, request, blocks)

    def on_copied(self, node: i64, index: i64) -> None:
        """Note that a follower begins again behind `index`, with a copy of the directory."""
        assert index > 0
        end_copy(self, node, index)

    def on_copy_failed(self, node: i64) -> None:
        """Note that a copy has failed. It is asked for again after an election timeout."""
        end_copy(self, node, 0)

    def may_install(self, index: i64, term: i64) -> bool:
        """Return True if a copy may replace this member's log; it ends with this committed block.

        A log that has this block already may have acknowledged blocks behind it. A log that has
        another block there has only blocks from there on that were never committed.
        """
        if self.role == LEADER or index <= self.commit:
            return False
        return self.needs_copy or not self.log.matches(index, term)

    def safe_index(self) -> i64:
        """Return the last block that is committed and synced here.

        `commit` alone may be ahead of this node's disk. Log files may be removed up to this block.
        """
        return min(self.commit, self.log.synced_index)

    def forget(self, base_index: i64) -> None:
        """Note that blocks up to `base_index` are not in log files any more."""
        assert base_index <= self.safe_index()
        if base_index > self.log.base_index:
            self.log.forget(base_index)

    def plan_add(self, member: Member) -> Members:
        return membership.plan_add(self, member)

    def plan_promote(self, node: i64) -> Members:
        return membership.plan_promote(self, node)

    def plan_remove(self, node: i64) -> Members:
        return membership.plan_remove(self, node)

    def transfer(self, target: i64) -> None:
        """Hand the lead over, or give up after an election timeout."""
        membership.transfer(self, target)

    def set_drained(self, is_drained: bool) -> None:
        """Let this member lead only if no other one can, or as usual."""
        self.is_drained = is_drained

    def is_member_drained(self, node: i64) -> bool:
        """Return True if a member is drained, as far as this leader has heard."""
        if node == self.node:
            return self.is_drained
        progress = self.progress.get(int(node))
        return progress is not None and progress.is_drained

    def best_successor(self) -> i64:
        return membership.best_successor(self)

    def take_messages(self) -> list[Message]:
        """Return the messages to send now, with all blocks that followers can take."""
        if self.role == LEADER:
            broadcast_append(self)
        messages = self.unsent
        self.unsent = []
        return messages

    def send_held(self) -> None:
        """Send the blocks that were held back. The host calls this soon after `has_held`."""
        if self.role == LEADER and self.has_held:
            send_held(self)

    def take_reads(self) -> list[ReadRequest]:
        """Return the reads from log files that followers need."""
        reads = self.reads
        self.reads = []
        return reads

    def take_copies(self) -> list[int]:
        """Return the followers to which the host must copy its directory."""
        copies = self.copies
        self.copies = []
        return copies

    def ready(self) -> Ready | None:
        """Return the next write for the host; None if there is none, or the last is not done."""
        if self._under_way is not None:
            return None
        is_hard_changed = not self.hard.equals(self.synced_hard)
        log = self.log
        is_log_changed = log.cut_from != 0 or log.written_index < log.last_index
        if not is_hard_changed and not is_log_changed and not self.waiting:
            return None
        ready = Ready(self.hard.copy(), log.last_index, log.last_term())
        ready.is_hard_changed = is_hard_changed
        ready.cut_from = log.cut_from
        ready.blocks = log.unwritten()
        log.note_written()
        ready.messages = self.waiting
        self.waiting = []
        self._under_way = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """Note that `ready`, and everything written before it, is synced."""
        assert ready is self._under_way
        self._under_way = None
        self.synced_hard = ready.hard
        self.log.synced_to(ready.last_index, ready.last_term)
        self.unsent += ready.messages
        if self.role == LEADER:
            self._count_own()
        else:
            self._settle_follower()
        count_own_vote(self)
        self._release()

    def _release(self) -> None:
        """Send the messages whose sync is done."""
        waiting = self.waiting
        self.waiting = []
        for message in waiting:
            self.send_synced(message, message.index if message.kind == APPEND_REPLY else 0)

    def status(self) -> Status:
        """Return the state of this member at this moment."""
        status = Status(self.role, self.term, self.leader)
        status.base = self.log.base_index
        status.commit = self.commit
        status.last = self.log.last_index
        status.synced = self.log.synced_index
        status.may_vote = self.hard.may_vote
        status.is_holding = self.is_holding()
        status.uncommitted_bytes = self.uncommitted_bytes if self.role == LEADER else 0
        status.window_bytes = self.log.window_bytes
        status.transfer_target = self.transfer_target
        for node, progress in self.progress.items():
            if node != self.node:
                state_ticks = self.ticks - progress.since_tick
                heard_ticks = self.ticks - progress.heard_tick
                status.followers.append(
                    FollowerStatus(node, progress.match, progress.state, state_ticks, heard_ticks)
                )
        return status
