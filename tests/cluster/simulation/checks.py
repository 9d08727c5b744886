"""The rules for one group, checked after every event.

Raft: election safety, log matching, leader completeness, state machine safety; terms and commit
indexes never decrease; the content of a message is on disk before it is sent; committed entries are
on the disks of a majority. Queue: no confirmed message is lost or queued twice, none is delivered
after an accepted settle, each publisher's messages stay in order; reads see everything that was
committed before them.
"""

import zlib

from leveret.cluster.commands import PURGE, SETTLE, body_of, decode_command
from leveret.cluster.machine import CONFIRM, DEAD_LETTER, DELIVER, SETTLED, Effect, Machine
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, Entry
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REPLY,
    GRANTED,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE_REPLY,
    Message,
)
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.state import LEADER
from tests.cluster.simulation.disk import Disk
from tests.cluster.simulation.view import View


class ViolationError(Exception):
    """Something that must hold does not."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def require(holds: bool, rule: str, text: str) -> None:
    if not holds:
        raise ViolationError(rule, text)


def mark(entry: Entry) -> tuple[int, int, int]:
    """What an entry is, in short."""
    return entry.term, entry.kind, zlib.crc32(entry.data)


def has_durably(view: View, index: int, term: int) -> bool:
    if view.snapshot is not None and index <= view.snapshot.index:
        return True
    at = index - view.first
    return 0 <= at < len(view.entries) and view.entries[at].term == term


class Seen:
    """What was last seen of one member, since it started."""

    def __init__(self, commit: int) -> None:
        self.term = 0
        self.led_term = 0
        self.commit = commit


class Checker:
    """Knows everything that has happened to one group."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.leaders: dict[int, int] = {}  # by term
        self.matching: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self.committed: dict[int, tuple[tuple[int, int, int], int]] = {}  # and the leader's term
        self.applied: dict[int, tuple[int, int, int]] = {}
        self.states: dict[int, int] = {}  # sums of effects and of snapshots, by index
        self.commit_max = 0
        self.disks: dict[int, Disk] = {}
        self.seen: dict[int, Seen] = {}
        # Queue
        self.accepted: dict[tuple[int, int], int] = {}
        self.bodies: dict[int, bytes] = {}
        self.last_seq: dict[int, int] = {}
        self.owners: dict[int, tuple[int, int]] = {}  # index to publisher and number
        self.first_delivered: set[int] = set()
        self.delivered_seq: dict[int, int] = {}
        self.gone: set[int] = set()  # settled on demand, dead-lettered or purged
        self.confirmed: set[tuple[int, int]] = set()
        self.settled: set[int] = set()  # and the consumer knows

    # After every event

    def on_start(self, raft: Raft, disk: Disk) -> None:
        """A member starts, for the first time or again: its term is where it was."""
        before = self.seen.get(raft.node)
        seen = Seen(raft.commit)
        if before is not None:
            seen.led_term = before.led_term
        self.seen[raft.node] = seen
        self.disks[raft.node] = disk

    def on_event(self, raft: Raft) -> None:
        seen = self.seen[raft.node]
        require(raft.term >= seen.term, "term", f"{raft.node} fell to term {raft.term}")
        seen.term = raft.term
        if raft.role == LEADER:
            first = self.leaders.setdefault(raft.term, raft.node)
            text = f"{first} and {raft.node} both lead term {raft.term}"
            require(first == raft.node, "election safety", text)
            if seen.led_term != raft.term:
                seen.led_term = raft.term
                self._check_complete(raft)
        if raft.commit != seen.commit:
            self._on_commit(raft, seen)
        # One that has only started does not know of a leader.
        if raft.is_asleep and raft.leader:
            text = f"{raft.node} sleeps with {raft.commit} of {raft.log.last_index()} committed"
            require(raft.commit == raft.log.last_index(), "sleep", text)

    def _check_complete(self, raft: Raft) -> None:
        log = raft.log
        for index in range(log.base_index + 1, self.commit_max + 1):
            found, term = self.committed.get(index, (None, 0))
            if found is not None and term <= raft.term:
                entry = log.entry(index)
                text = f"{raft.node} leads term {raft.term} without committed entry {index}"
                require(entry is not None and mark(entry) == found, "leader completeness", text)

    def _on_commit(self, raft: Raft, seen: Seen) -> None:
        text = f"{raft.node} fell from {seen.commit} to {raft.commit}"
        require(raft.commit > seen.commit, "commit", text)
        for index in range(max(seen.commit, raft.log.base_index) + 1, raft.commit + 1):
            entry = raft.log.entry(index)
            assert entry is not None
            found, _ = self.committed.setdefault(index, (mark(entry), raft.term))
            text = f"{raft.node} commits another entry at {index}"
            require(found == mark(entry), "state machine safety", text)
            if raft.role == LEADER:
                self._check_majority(raft, entry)
        seen.commit = raft.commit
        self.commit_max = max(self.commit_max, raft.commit)

    def _check_majority(self, raft: Raft, entry: Entry) -> None:
        """What a leader commits is on the disks of a majority."""
        members = raft.log.members()
        durable = [node for node in members.voters if self._is_durable(node, entry)]
        text = (
            f"{raft.node} commits {entry.index}, on the disks of {durable} of {members.voters} only"
        )
        require(len(durable) >= members.quorum(), "durable majority", text)

    def _is_durable(self, node: int, entry: Entry) -> bool:
        disk = self.disks.get(node)
        return disk is not None and has_durably(disk.views[self.group], entry.index, entry.term)

    def on_ready(self, raft: Raft, ready: Ready) -> None:
        """Log matching: an entry says what it is and which entry it follows."""
        for entry in ready.entries:
            before = entry.index - 1
            known = raft.log.term(before) if before >= raft.log.base_index else -1
            if known < 0:
                continue
            found = self.matching.setdefault((entry.index, entry.term), (known, *mark(entry)))
            text = f"{raft.node} has another entry {entry.index} of term {entry.term}"
            require(found == (known, *mark(entry)), "log matching", text)

    def on_send(self, raft: Raft, message: Message) -> None:
        """What a message lets others rely on is on disk."""
        if message.kind in (PRE_VOTE, PRE_VOTE_REPLY):
            return
        view = self.disks[raft.node].views[self.group]
        text = f"{raft.node} speaks in term {message.term}, its disk is in term {view.term}"
        require(view.term >= message.term, "durable term", text)
        if message.kind == VOTE_REPLY and message.context == GRANTED:
            if view.term == message.term:
                text = (
                    f"{raft.node} votes for {message.target} in term {view.term}, disk: {view.vote}"
                )
                require(view.vote == message.target, "durable vote", text)
        elif message.kind == APPEND_REPLY:
            text = f"{raft.node} acknowledges {message.index} without having it on disk"
            last = view.first - 1 + len(view.entries)
            # What it had in an earlier term may have been cut off since: whoever has committed by
            # such a word cannot have been followed by a leader that cuts it off.
            is_had = last >= message.index or view.term > message.term
            require(is_had, "durable entries", text)
        elif message.kind == APPEND and message.entries:
            last = message.entries[-1].index
            require(
                view.first - 1 + len(view.entries) >= last or view.term > message.term,
                "durable entries",
                f"{raft.node} sends {last} before it is on its disk",
            )

    # What is applied

    def on_apply(
        self, node: int, machine: Machine, entry: Entry, effects: list[Effect], before: set[int]
    ) -> None:
        found = self.applied.setdefault(entry.index, mark(entry))
        text = f"{node} applies another entry {entry.index}"
        require(found == mark(entry), "state machine safety", text)
        total = 0
        for effect in effects:
            row = f"{effect.kind} {effect.target} {effect.index} {effect.number}"
            total = zlib.crc32(row.encode(), total)
        if entry.index % 8 == 0:
            total = zlib.crc32(machine.snapshot(), total)
        is_first = entry.index not in self.states
        text = f"{node} comes to another state at {entry.index}"
        require(self.states.setdefault(entry.index, total) == total, "determinism", text)
        if is_first and entry.kind == COMMAND:
            self._on_first_apply(entry, effects, before)

    def _on_first_apply(self, entry: Entry, effects: list[Effect], before: set[int]) -> None:
        command = decode_command(entry.data)
        if command.kind == PURGE:
            self.gone.update(before)
        for effect in effects:
            if effect.kind == CONFIRM and effect.index:
                self._on_accepted(effect, body_of(entry.data))
            elif effect.kind == DEAD_LETTER or (effect.kind == SETTLED and command.kind == SETTLE):
                self.gone.add(effect.index)
            elif effect.kind == DELIVER:
                self._on_first_delivery(effect)

    def _on_accepted(self, effect: Effect, body: bytes) -> None:
        publisher, seq = effect.target, effect.number
        text = f"{publisher}'s message {seq} is queued at {effect.index} again"
        require((publisher, seq) not in self.accepted, "duplicate", text)
        self.accepted[publisher, seq] = effect.index
        text = f"{publisher}'s message {seq} comes after {self.last_seq.get(publisher, 0)}"
        require(seq == self.last_seq.get(publisher, 0) + 1, "order", text)
        self.last_seq[publisher] = seq
        self.owners[effect.index] = publisher, seq
        self.bodies[effect.index] = body

    def _on_first_delivery(self, effect: Effect) -> None:
        if effect.index in self.first_delivered:
            return
        self.first_delivered.add(effect.index)
        publisher, seq = self.owners[effect.index]
        text = f"{publisher}'s message {seq} is delivered after a later one"
        require(seq > self.delivered_seq.get(publisher, 0), "order", text)
        self.delivered_seq[publisher] = seq

    # What clients see

    def on_confirmed(self, publisher: int, seq: int) -> None:
        text = f"{publisher}'s message {seq} is confirmed and was never queued"
        require((publisher, seq) in self.accepted, "lost", text)
        self.confirmed.add((publisher, seq))

    def on_delivered(self, index: int, body: bytes | None) -> None:
        require(index not in self.settled, "settled again", f"message {index} was settled")
        text = f"the body of message {index} is {body!r}"
        require(body == self.bodies[index], "body", text)

    def on_read(self, index: int, committed_before: int) -> None:
        text = f"a read sees {index}, {committed_before} was committed before it"
        require(index >= committed_before, "stale read", text)

    def check_end(self, messages: set[int]) -> None:
        """In the end every confirmed message is in the queue, or left it as it should."""
        for key in self.confirmed:
            index = self.accepted[key]
            text = f"{key} is confirmed, at {index}, and gone"
            require(index in messages or index in self.gone, "lost", text)
