"""A disk with the log and the hard state of one member.

Writes become safe by a sync, in the order in which they were issued. When power fails, a part of
the unsynced writes is left: a prefix of those to the log, and any of those to the hard state, which
is another file. A torn block at the end counts as not written. Damage cuts off synced blocks.
"""

import random

from leveret.cluster.raft.block import Block
from leveret.cluster.raft.members import Members
from leveret.cluster.raft.stored import UNKNOWN_PROMISE, HardState, Stored


class Image:
    """The content of a disk: log files from a base on, and the hard state."""

    def __init__(self) -> None:
        self.hard = HardState()
        self.base = 0
        self.base_term = 0
        self.base_members: tuple[int, Members] = 0, Members([], [])
        self.blocks: list[Block] = []  # from base + 1 on
        self.needs_copy = False

    @property
    def last(self) -> int:
        return self.base + len(self.blocks)

    def copy(self) -> "Image":
        made = Image()
        made.hard = self.hard.copy()
        made.base, made.base_term = self.base, self.base_term
        made.base_members = self.base_members
        made.blocks = list(self.blocks)
        made.needs_copy = self.needs_copy
        return made

    def block(self, index: int) -> Block | None:
        at = index - self.base - 1
        return self.blocks[at] if 0 <= at < len(self.blocks) else None

    def cut(self, first: int) -> None:
        assert first > self.base, "a cut before the base of the log"
        del self.blocks[first - self.base - 1 :]

    def forget(self, base: int) -> None:
        assert self.base <= base <= self.last
        for block in self.blocks[: base - self.base]:
            self.base_term = block.term
            if block.members is not None:
                self.base_members = block.index, block.members
        del self.blocks[: base - self.base]
        self.base = base

    def stored(self, commit: int = 0) -> Stored:
        """Return the state that a member starts with."""
        stored = Stored(self.hard.copy())
        stored.base_index, stored.last_index = self.base, self.last
        stored.commit = max(commit, self.base)
        stored.needs_copy = self.needs_copy
        stored.terms = [(self.base_term, self.base)]
        stored.members = [self.base_members]
        for block in self.blocks:
            if block.term > stored.terms[-1][0]:
                stored.terms.append((block.term, block.index))
            if block.members is not None:
                stored.members.append((block.index, block.members))
        return stored


Write = int | Block | HardState  # a cut, a block behind the last, the state


def apply(image: Image, write: Write) -> None:
    if isinstance(write, int):
        image.cut(write)
    elif isinstance(write, HardState):
        image.hard = write.copy()
    else:
        assert write.index == image.last + 1, f"block {write.index} behind {image.last}"
        image.blocks.append(write)


class Disk:
    """The synced and the written state, and the state that a crash leaves."""

    def __init__(self) -> None:
        self.durable = Image()
        self.written = Image()  # with everything that is not synced
        self.pending: list[Write] = []
        self.issued = 0  # writes so far
        self.synced = 0

    def write(self, write: Write) -> None:
        apply(self.written, write)
        self.pending.append(write)
        self.issued += 1

    def sync(self, up_to: int) -> None:
        """All writes that were issued up to this number are safe."""
        count = up_to - self.synced
        for write in self.pending[:count]:
            apply(self.durable, write)
        del self.pending[:count]
        self.synced = up_to

    def crash(self, rng: random.Random) -> None:
        """Power fails, or the process is killed."""
        log = [write for write in self.pending if not isinstance(write, HardState)]
        states = [write for write in self.pending if isinstance(write, HardState)]
        for write in log[: rng.randint(0, len(log))]:
            apply(self.durable, write)
        for state in states[: rng.randint(0, len(states))]:
            apply(self.durable, state)
        self.lose()

    def lose(self) -> None:
        """Nothing is left of what was not synced."""
        self.pending = []
        self.synced = self.issued
        self.written = self.durable.copy()

    def forget(self, base: int) -> None:
        """Remove log files. What was in them is synced."""
        self.durable.forget(base)
        self.written.forget(base)

    def install(self, image: Image) -> None:
        """Replace everything by a copy, at once."""
        self.durable = image
        self.lose()

    def damage(self, rng: random.Random) -> bool:
        """Lose synced blocks from one on; the start finds out, and remembers it."""
        image = self.durable
        if not image.blocks or self.pending:
            return False
        last = image.last
        image.cut(rng.randint(image.base + 1, last))
        image.needs_copy = image.needs_copy or rng.random() < 0.3
        known = last if rng.random() < 0.3 and image.hard.may_vote else UNKNOWN_PROMISE
        image.hard.note_loss(known)
        self.lose()
        return True
