"""The rules, checked after every event.

Raft: election safety, log matching, leader completeness, one committed block at each index for
ever; terms and commit indexes never fall; what a message promises is on disk before it is sent;
committed blocks are on the disks of a majority; a voter has every committed block that it has ever
acknowledged. Beyond Raft: no heartbeats while the disk hangs, no hand-over before the successor has
everything, and bounded memory.
"""

import zlib

from leveret.cluster.raft.block import TERM, Block
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REPLY,
    COMMIT,
    GRANTED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
)
from leveret.cluster.raft.state import CANDIDATE, LEADER
from tests.cluster.simulation.disk import Disk, Image

Mark = tuple[int, int, int]
BLOCK_BYTES_MAX = 300  # of the simulator's blocks
# Messages that rely on nothing that is on disk.
FREE = (PRE_VOTE, PRE_VOTE_REPLY, HEARTBEAT_REPLY)


class ViolationError(Exception):
    """Something that must hold does not."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def require(holds: bool, rule: str, text: str) -> None:
    if not holds:
        raise ViolationError(rule, text)


def mark(block: Block) -> Mark:
    """Return term, kind and checksum of a block."""
    return block.term, block.kind, zlib.crc32(block.data)


def has(image: Image, index: int, wanted: Mark) -> bool:
    """Whether a disk has a block; one before its base is committed, and so had by all."""
    if index <= image.base:
        return True
    block = image.block(index)
    return block is not None and mark(block) == wanted


class Seen:
    """What was last seen of one member, since it started."""

    def __init__(self, commit: int) -> None:
        self.term = 0
        self.led_term = 0
        self.commit = commit


class Checker:
    """Knows everything that has happened."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # by term
        self.matching: dict[tuple[int, int], tuple[int, Mark]] = {}  # with the term before
        self.committed: dict[int, tuple[Mark, int]] = {}  # and the leader's term
        self.commit_max = 0
        self.disks: dict[int, Disk] = {}
        self.seen: dict[int, Seen] = {}
        self.votes: dict[tuple[int, int], int] = {}  # by voter and term
        self.acknowledged: dict[int, dict[int, Mark]] = {}  # by member: what others may count on
        self.hurt: set[int] = set()  # members whose disks have lost synced blocks
        self.confirmed = 0

    # After every event

    def on_start(self, raft: Raft, disk: Disk) -> None:
        """A member starts, for the first time or again."""
        before = self.seen.get(raft.node)
        seen = Seen(raft.commit)
        if before is not None:
            seen.led_term = before.led_term
        self.seen[raft.node] = seen
        self.disks[raft.node] = disk
        self.acknowledged.setdefault(raft.node, {})

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
        log = raft.log
        text = f"{raft.node} has {log.synced_index} of {log.last_index} after {log.base_index}"
        require(log.base_index <= log.synced_index <= log.last_index, "log", text)
        self._check_memory(raft)

    def _check_complete(self, raft: Raft) -> None:
        image = self.disks[raft.node].written
        for index, (found, term) in self.committed.items():
            if term <= raft.term:
                text = f"{raft.node} leads term {raft.term} without committed block {index}"
                require(has(image, index, found), "leader completeness", text)

    def _on_commit(self, raft: Raft, seen: Seen) -> None:
        text = f"{raft.node} fell from {seen.commit} to {raft.commit}"
        require(raft.commit > seen.commit, "commit", text)
        image = self.disks[raft.node].written
        for index in range(seen.commit + 1, raft.commit + 1):
            if index <= image.base:
                continue
            is_written = index <= raft.log.written_index
            block = image.block(index) if is_written else self._unwritten(raft, index)
            text = f"{raft.node} commits block {index} and does not have it"
            require(block is not None, "state machine safety", text)
            assert block is not None
            found, _ = self.committed.setdefault(index, (mark(block), raft.term))
            text = f"{raft.node} commits another block at {index}"
            require(found == mark(block), "state machine safety", text)
            if raft.role == LEADER:
                self._check_majority(raft, block)
                self.confirmed = max(self.confirmed, index)
        seen.commit = raft.commit
        self.commit_max = max(self.commit_max, raft.commit)

    def _unwritten(self, raft: Raft, index: int) -> Block | None:
        """A block that the member has, and its host does not have yet."""
        log = raft.log
        return log.block(index) if log.window_first <= index <= log.last_index else None

    def _check_majority(self, raft: Raft, block: Block) -> None:
        """Check that a committed block is on the disks of a majority, unless a disk was damaged."""
        members = raft.log.members()
        durable = [
            node
            for node in members.voters
            if node in self.hurt
            or (node in self.disks and has(self.disks[node].durable, block.index, mark(block)))
        ]
        text = (
            f"{raft.node} commits {block.index}, on the disks of {durable} of {members.voters} only"
        )
        require(len(durable) >= members.quorum(), "durable majority", text)

    def _check_memory(self, raft: Raft) -> None:
        config = raft.config
        limit = config.window_bytes_max + config.uncommitted_bytes_max + BLOCK_BYTES_MAX
        if raft.role != LEADER:
            limit += config.follower_bytes_max + config.append_bytes_max + BLOCK_BYTES_MAX
        text = f"{raft.node} has {raft.log.window_bytes} bytes of blocks in memory"
        require(raft.log.window_bytes <= limit, "memory", text)

    # The log

    def on_block(self, image: Image, block: Block) -> None:
        """Log matching: a block says what it is and which block it follows."""
        before = image.block(block.index - 1)
        term = image.base_term if before is None else before.term
        found = self.matching.setdefault((block.index, block.term), (term, mark(block)))
        text = f"another block {block.index} of term {block.term}"
        require(found == (term, mark(block)), "log matching", text)
        text = f"block {block.index} begins no term"
        require((block.kind == TERM) == (term != block.term), "term block", text)

    def on_cut(self, raft: Raft, first: int) -> None:
        """Only blocks are cut off that are not committed, and the first one conflicts."""
        image = self.disks[raft.node].written
        for index in range(first, image.last + 1):
            block = image.block(index)
            found = self.committed.get(index, (None, 0))[0]
            text = f"{raft.node} cuts off committed block {index}"
            require(block is not None and found != mark(block), "cut", text)

    def on_synced(self, raft: Raft) -> None:
        """Count a block that the leader has synced as acknowledged by the leader."""
        text = f"{raft.node} believes that {raft.log.synced_index} blocks are synced"
        require(raft.log.synced_index <= self.disks[raft.node].durable.last, "durable blocks", text)
        if raft.role == LEADER:
            self._note_acknowledged(raft.node, raft.log.synced_index)

    def _note_acknowledged(self, node: int, last: int) -> None:
        image = self.disks[node].durable
        known = self.acknowledged[node]
        index = last
        while index > image.base:
            block = image.block(index)
            if block is None or known.get(index) == mark(block):
                break  # and so are all before it
            known[index] = mark(block)
            index -= 1

    def on_damage(self, node: int) -> None:
        self.hurt.add(node)

    # Messages

    def on_tick(self, raft: Raft, sync_ticks: int) -> None:
        """A leader steps down when its disk is late by an election timeout."""
        text = f"{raft.node} leads though its disk hangs for {sync_ticks} ticks"
        is_late = sync_ticks >= raft.config.election_ticks
        require(raft.role != LEADER or not is_late, "hung disk", text)

    def on_send(self, raft: Raft, message: Message, sync_ticks: int) -> None:
        """What a message lets others rely on is on disk."""
        if message.kind in FREE:
            return
        image = self.disks[raft.node].durable
        text = f"{raft.node} speaks in term {message.term}, its disk is in term {image.hard.term}"
        require(image.hard.term >= message.term, "durable term", text)
        if message.kind == VOTE:
            self._on_vote(raft, message, raft.node)
        elif message.kind == VOTE_REPLY and message.context == GRANTED:
            self._on_vote(raft, message, message.target)
        elif message.kind == APPEND_REPLY:
            self._on_acknowledge(raft, message, image)
        elif message.kind == HEARTBEAT:
            text = f"{raft.node} sends heartbeats though its disk hangs for {sync_ticks} ticks"
            require(sync_ticks < raft.config.heartbeat_ticks, "hung disk", text)
        elif message.kind == TIMEOUT_NOW and raft.transfer_target == message.target:
            last = raft.log.last_index
            disk = self.disks.get(message.target)
            is_there = disk is None or message.target in self.hurt or disk.durable.last >= last
            text = f"{message.target} is to lead without block {last}"
            require(is_there and raft.commit == last, "hand-over", text)
        if message.kind in (APPEND, COMMIT):
            self._on_told(raft, message)

    def _on_vote(self, raft: Raft, message: Message, candidate: int) -> None:
        image = self.disks[raft.node].durable
        if image.hard.term == message.term:
            text = f"{raft.node} votes for {candidate} in {message.term}, disk: {image.hard.vote}"
            require(image.hard.vote == candidate, "durable vote", text)
        before = self.votes.setdefault((raft.node, message.term), candidate)
        text = f"{raft.node} votes for {before} and {candidate} in term {message.term}"
        require(before == candidate, "votes once", text)
        written = self.disks[raft.node].written
        for index, known in self.acknowledged[raft.node].items():
            found, term = self.committed.get(index, (None, 0))
            if found == known and term < message.term:
                text = f"{raft.node} votes without block {index}, which it had acknowledged"
                require(has(written, index, known), "kept promise", text)
        assert raft.role != CANDIDATE or raft.hard.may_vote

    def _on_acknowledge(self, raft: Raft, message: Message, image: Image) -> None:
        text = f"{raft.node} acknowledges {message.index} without having it on disk"
        # A block of an earlier term may have been cut off since. No leader cuts off a block that
        # an earlier leader has committed by such a reply.
        is_had = image.last >= message.index or image.hard.term > message.term
        require(is_had, "durable blocks", text)
        self._note_acknowledged(raft.node, min(message.index, image.last))

    def _on_told(self, raft: Raft, message: Message) -> None:
        text = f"{raft.node} tells that {message.commit} is committed"
        require(message.commit <= self.commit_max, "commit", text)

    def check_end(self, image: Image) -> None:
        """In the end the leader has every block that was ever committed."""
        for index, (found, _) in self.committed.items():
            text = f"committed block {index} of {self.commit_max} is gone"
            require(has(image, index, found), "lost", text)
