"""The host of one Raft member: passes events to it, writes its blocks, and reports to its owner.

It does the work that `leveret.cluster.raft` names. The log that it writes to belongs to the owner
and changes with the role:

    follows ── MemberLog ──► wins, writes its TERM block ── committed: on_lead(term) ──► no log
    no log ── lead_with(LeaderLog) ──► leads ── loses the lead: on_follow(…) ──► no log
    no log: the owner opens its directory again, and makes a new host, which follows

Without a log nothing is written, so nothing is promised to other members; heartbeats and messages
go on. The new host starts only from its directory: the leader's log may have ended before
all of its blocks were written.

On the leader the log itself writes its blocks and gives them to `append`. This module does no I/O:
messages, files and copies are reached by the Protocols of `host_owner`, and time is that of the
loop. It is compiled, because every block passes it several times.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from leveret.cluster.errors import BusyError, FalseMessageError
from leveret.cluster.host_owner import Done, HostOwner, LeaderLog, LogReader, MemberLog
from leveret.cluster.raft.block import MEMBERS, TERM, Block
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.members import NOBODY, Members, encode_members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.ready import ReadRequest, Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import HardState
from leveret.errors import ProtocolError

log = logging.getLogger(__name__)

TICK_S: Final = 0.1  # ten ticks are the shortest election timeout
# For this long, blocks are held back from a follower that no commit needs. If the other followers
# hang, a commit takes so much longer once.
HELD_S: Final = 0.005
# A majority that is heard by heartbeats alone is heard within so many ticks.
CONTACT_TICKS: Final = 3
# A disk may need the time for the largest block at this speed, before it counts as hung.
SLOW_DISK_BYTES_PER_S: Final = 32 * 1024 * 1024


class RaftHost:
    """Hosts one member."""

    def __init__(
        self,
        raft: Raft,
        member_log: MemberLog | None,
        owner: HostOwner,
        now_s: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
        tick_s: float = TICK_S,
    ) -> None:
        self.raft = raft
        self._owner = owner
        self._now_s = now_s
        self._call_later = call_later
        self._is_send_due = False  # a timer will send the blocks that are held back
        self._tick_s = tick_s
        self._member_log = member_log
        self._leader_log: LeaderLog | None = None
        self._writes = 0  # of the member's log, under way
        self._sync_since_s = -1.0  # when the disk last made progress on what is under way; -1: idle
        self._reads: list[ReadRequest] = []  # wait for a log
        self._is_handing_over = False
        self._proposed: Members | None = None  # given to the log, which makes the block
        self._led_term = 0  # the term of which the owner was told that this member leads
        self._leader = -1  # the leader of which the owner was told; -1: of none yet
        self._committed = raft.safe_index()
        self._members: tuple[Members, Members] | None = None
        self._is_pumping = False
        self._must_pump = False
        self._ticks_s = deque([now_s()], CONTACT_TICKS + 1)  # times of the last ticks
        self._contact_s = now_s()  # since then a majority was heard
        self._lease_block = 0  # this block must be committed for a new lease; 0: there is a lease
        self.has_ended = False

    # Inputs

    def tick(self) -> None:
        """Advance the time by one tick."""
        self._run(self._tick)

    def _tick(self) -> None:
        self._check_lease()
        self.raft.tick(self.sync_ticks())
        self._ticks_s.append(self._now_s())
        if self.raft.is_in_contact(CONTACT_TICKS):
            self._contact_s = self._ticks_s[0]

    def on_receiving(self) -> None:
        """Note that a large message of the leader is on its way. Call it before a tick."""
        self._run(self.raft.on_receiving)

    def on_messages(self, messages: list[Message]) -> None:
        """Handle messages of another member. Raise a `ProtocolError` by the first false one."""
        if self.has_ended:
            return
        try:
            for message in messages:
                self._require_sound(message)
                self.raft.step(message)
        except ProtocolError:
            self._run(_do_nothing)  # the messages before it count
            raise
        except Exception as fault:
            self._on_bug(fault)
            return
        self._run(_do_nothing)

    def _require_sound(self, message: Message) -> None:
        """Raise `FalseMessageError` if a block was damaged on its way, or is another one."""
        if self._member_log is not None:
            for block in message.blocks:
                fault = self._member_log.block_fault(block)
                if fault:
                    raise FalseMessageError(fault)

    def _send_held(self) -> None:
        self._is_send_due = False
        self._run(self.raft.send_held)

    def on_link_lost(self, number: int) -> None:
        self._run(partial(self._on_link_lost, number))

    def _on_link_lost(self, number: int) -> None:
        self.raft.on_link_lost(number)
        if not self.raft.is_in_contact(self.raft.config.election_ticks):
            self._lose_lease()  # members without a link elect a leader within a few ticks

    def on_messages_lost(self, number: int) -> None:
        """Note that messages to a member may be lost, though it is connected."""
        self._run(partial(self.raft.on_messages_lost, number))

    def append(self, index: int, kind: int, data: bytes) -> None:
        """Take a block that the leader's log has made and writes itself.

        Raise `NotLeaderError` or `BusyError` if this member does not lead. Then the log must not
        write the block. Ask `may_append` before.
        """
        members: Members | None = None
        if kind == MEMBERS:
            members, self._proposed = self._proposed, None
            if members is None:
                raise BusyError("no change of the members is wanted")
        self._append(Block(index, self.raft.term, kind, data, members))
        self._pump()

    def _append(self, block: Block) -> None:
        self.raft.append(block)
        if self._sync_since_s < 0:
            self._sync_since_s = self._now_s()

    def on_written(self, index: int) -> None:
        """Note that the leader's log has synced its blocks up to this one."""
        if self.has_ended:
            return
        try:
            raft_log = self.raft.log
            if raft_log.base_index <= index <= raft_log.last_index:
                self.raft.on_synced(index, raft_log.term(index))
            self._note_progress()
            self._pump()
        except Exception as fault:
            self._on_bug(fault)

    def forget(self, base_index: int) -> None:
        """Note that blocks up to this one are in no log file any more."""
        self._run(partial(self.raft.forget, base_index))

    def follow(self, term: int, leader: int) -> None:
        """Begin as a follower in a term that is known already, with its leader or none."""
        self._run(partial(self.raft.become_follower, term, leader))

    def lead_with(self, leader_log: LeaderLog) -> None:
        """Lead with this log; without effect if the lead is lost already."""
        if self._led_term and self.raft.role == LEADER:
            self._leader_log = leader_log
            self._lease_block = int(self.raft.log.last_index) + 1
            leader_log.commit_to(self._committed)
            reads, self._reads = self._reads, []
            for request in reads:
                self._read(request)
            self._pump()

    def propose(self, members: Members) -> None:
        """Let the leader's log make a block of members that `Raft.plan_…` has returned."""
        if self._leader_log is None:
            raise BusyError("this node has only begun to lead")
        if self._proposed is not None:
            raise BusyError("another change is not committed yet")
        self._proposed = members
        self._leader_log.append_members(encode_members(members))

    def transfer(self, target: int) -> None:
        """Hand the lead over; see `Raft.transfer`."""
        self.raft.transfer(target)
        self._pump()

    # State

    @property
    def is_leading(self) -> bool:
        """True if this member leads with the leader's log."""
        return self._leader_log is not None

    @property
    def is_elected(self) -> bool:
        """True from the election on; the lead may still be lost before anything is committed."""
        return self.raft.role == LEADER

    @property
    def may_append(self) -> bool:
        return self._leader_log is not None and self.raft.may_append()

    def is_full(self) -> bool:
        """Return True while the leader's log must make no block.

        Too much is not committed, or this member does not lead, or it hands the lead over.
        """
        return self.raft.is_full() or not self.may_append

    def has_lease(self) -> bool:
        """Return whether no other node can lead, because a majority has heard this one lately.

        A leader loses its lease when it hears no majority, when it hands the lead over, and when
        its process was stopped for a while: what it hears then may be old. It has a new lease when
        a later block is committed.
        """
        if self._leader_log is None:
            return False
        if self._lease_block and self._committed >= self._lease_block:
            self._lease_block = 0
        self._check_lease()
        return self._lease_block == 0

    def _check_lease(self) -> None:
        lease_s = int(self.raft.config.election_ticks) * self._tick_s / 2
        is_over = self._now_s() - self._contact_s > lease_s
        if self._lease_block == 0 and (is_over or self.raft.transfer_target != NOBODY):
            self._lose_lease()

    def _lose_lease(self) -> None:
        if self._leader_log is not None:
            self._lease_block = int(self.raft.log.last_index) + 1

    @property
    def committed(self) -> int:
        """The last block that is committed, and on this disk."""
        return self._committed

    def sync_ticks(self) -> int:
        """Return for how many ticks the disk has made no progress on what is under way.

        The time that a slow disk needs for the largest block does not count.
        """
        if self._sync_since_s < 0:
            return 0
        ticks = int((self._now_s() - self._sync_since_s) / self._tick_s)
        if ticks > 0:
            raft_log = self.raft.log
            largest = raft_log.largest_between(raft_log.synced_index, raft_log.last_index)
            ticks -= int(largest / SLOW_DISK_BYTES_PER_S / self._tick_s)
        return max(0, ticks)

    def fail(self, reason: str) -> None:
        """Stop the host: it writes, sends and promises nothing more."""
        if not self.has_ended:
            self.has_ended = True
            self._owner.on_fault(reason)

    # Work that the Raft member asks for

    def _run(self, action: Callable[[], None]) -> None:
        """Give the member an input, and do the work that follows. A broken rule ends the member."""
        if self.has_ended:
            return
        try:
            action()
            self._pump()
        except Exception as fault:
            self._on_bug(fault)

    def _on_bug(self, fault: Exception) -> None:
        log.error("Raft on this node has failed: please report this bug", exc_info=fault)
        self.fail(f"Raft on this node has failed: {fault!r}")

    def _pump(self) -> None:
        """Do all work that the member asks for, until there is no more."""
        self._must_pump = True
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._must_pump and not self.has_ended:
                self._must_pump = False
                self._pump_once()
        finally:
            self._is_pumping = False

    def _pump_once(self) -> None:
        raft = self.raft
        if self._member_log is not None:
            if raft.needs_term_block():
                self._write_term(self._member_log)
            ready = raft.ready()
            if ready is not None:
                self._write_ready(self._member_log, ready)
        messages = raft.take_messages()
        if messages:
            self._send(messages)
        if raft.has_held and not self._is_send_due:
            self._is_send_due = True
            self._call_later(HELD_S, self._send_held)
        for request in raft.take_reads():
            self._read(request)
        for target in raft.take_copies():
            self._copy(target)
        self._report_changes()

    def _write_term(self, member_log: MemberLog) -> None:
        raft = self.raft
        index, term = int(raft.log.last_index) + 1, int(raft.term)
        block = Block(index, term, TERM, member_log.make_block(index, term, TERM, b""))
        self._append(block)
        self._write(member_log, None, 0, [block], partial(raft.on_synced, index, term))

    def _write_ready(self, member_log: MemberLog, ready: Ready) -> None:
        hard = ready.hard if ready.is_hard_changed else None
        cut_from = int(ready.cut_from)
        self._write(member_log, hard, cut_from, ready.blocks, partial(self.raft.advance, ready))

    def _write(
        self,
        member_log: MemberLog,
        hard: HardState | None,
        cut_from: int,
        blocks: list[Block],
        done: Done,
    ) -> None:
        self._writes += 1
        if self._sync_since_s < 0:
            self._sync_since_s = self._now_s()
        member_log.write(hard, cut_from, blocks, partial(self._on_done, done))

    def _on_done(self, done: Done) -> None:
        """Tell the member that a write is synced."""
        if self.has_ended:
            return
        try:
            self._writes -= 1
            done()
            self._note_progress()
            self._pump()
        except Exception as fault:
            self._on_bug(fault)

    def _note_progress(self) -> None:
        raft_log = self.raft.log
        is_leading = self._leader_log is not None
        is_busy = self._writes > 0 or (is_leading and raft_log.synced_index < raft_log.last_index)
        self._sync_since_s = self._now_s() if is_busy else -1.0

    def _send(self, messages: list[Message]) -> None:
        by_target: dict[int, list[Message]] = {}
        for message in messages:
            by_target.setdefault(int(message.target), []).append(message)
        for target, some in by_target.items():
            self._owner.send(target, some)

    def _read(self, request: ReadRequest) -> None:
        reader: LogReader | None = self._leader_log or self._member_log
        if reader is None:
            self._reads.append(request)
            return
        reader.read_blocks(
            int(request.first),
            int(request.last),
            int(request.bytes_max),
            partial(self._on_read, request),
        )

    def _on_read(self, request: ReadRequest, blocks: list[Block]) -> None:
        self._run(partial(self.raft.on_read, request, blocks))

    def _copy(self, target: int) -> None:
        self._owner.copy_to(target, partial(self._on_copy_ended, target, int(self.raft.term)))

    def _on_copy_ended(self, target: int, term: int, last: int) -> None:
        self._run(partial(self._on_copied, target, term, last))

    def _on_copied(self, target: int, term: int, last: int) -> None:
        raft = self.raft
        if raft.role != LEADER or raft.term != term:
            return
        if last > 0:
            raft.on_copied(target, last)
        else:
            raft.on_copy_failed(target)

    # Reports to the owner

    def _report_changes(self) -> None:
        raft = self.raft
        if self._led_term and (raft.role != LEADER or raft.term != self._led_term):
            self._led_term = 0
            self._leader_log = None
            self._proposed = None
            self._note_progress()
            self._leader = int(raft.leader)
            self._owner.on_follow(self._leader)
        self._report_commit()
        self._report_members()
        self._report_hand_over()
        if raft.role == LEADER:
            if not self._led_term and self._member_log is not None:
                if raft.has_committed_own_term():
                    self._led_term = int(raft.term)
                    self._leader = int(raft.node)
                    self._member_log = None
                    self._owner.on_lead(self._led_term)
        elif self._leader != raft.leader:
            self._leader = int(raft.leader)
            self._owner.on_follow(self._leader)

    def _report_commit(self) -> None:
        index = int(self.raft.safe_index())
        if index > self._committed:
            self._committed = index
            reader: LogReader | None = self._leader_log or self._member_log
            if reader is not None:
                reader.commit_to(index)
            self._owner.on_commit(index)

    def _report_hand_over(self) -> None:
        """Let the leader's log go on after a hand-over that was given up."""
        was_handing_over = self._is_handing_over
        self._is_handing_over = self.raft.transfer_target != NOBODY
        if was_handing_over and self.may_append and self._leader_log is not None:
            self._leader_log.resume()

    def _report_members(self) -> None:
        raft = self.raft
        seen = self._members
        now = raft.log.members()
        committed = raft.log.members_at(raft.commit)
        if seen is None or seen[0] is not now or seen[1] is not committed:
            self._members = now, committed
            self._owner.on_members()


def _do_nothing() -> None:
    """Do nothing: the work that follows an input is wanted."""
