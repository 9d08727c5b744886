"""A disk that may lose what was not synced, keep a part of it, or turn a bit of what was."""

import random

from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.records import Recovery, Remains, whole_block
from leveret.cluster.raft.stored import Stored


class Disk:
    """The log of one node, of one group or of many.

    A view is what a reader would find of a group after a crash right now.
    """

    def __init__(self, group: int) -> None:
        self.group = group
        self.synced = b""
        self.pending = b""
        self._recovery = Recovery()
        self.is_damaged = False

    @property
    def view(self) -> Remains:
        return self.view_of(self.group)

    def view_of(self, group: int) -> Remains:
        return self._recovery.remains(group)

    def write(self, block: bytes) -> None:
        self.pending += block

    def sync(self) -> None:
        """All that was written is safe."""
        self._recovery.read(self.pending)
        assert self._recovery.torn_bytes == 0
        self.synced += self.pending
        self.pending = b""

    def crash(self, rng: random.Random) -> None:
        """Power fails: of what was not synced nothing is left, or a part, or all."""
        kept = rng.choice((0, 0, rng.randint(0, len(self.pending)), len(self.pending)))
        self.synced += self.pending[:kept]
        self.pending = b""

    def damage(self, rng: random.Random) -> bool:
        """Turn a bit before the last whole block, where it cannot pass for a torn write."""
        starts = []
        at = 0
        while at < len(self.synced) and (size := whole_block(self.synced, at)):
            starts.append(at)
            at += size
        if len(starts) < 2:
            return False
        spot = rng.randrange(starts[-1])
        turned = bytes([self.synced[spot] ^ (1 << rng.randrange(8))])
        self.synced = self.synced[:spot] + turned + self.synced[spot + 1 :]
        self.is_damaged = True
        return True

    def start(self, members: Members) -> Stored:
        """Open, and begin with the one group."""
        self.open()
        return self.stored(self.group, members)

    def open(self) -> None:
        """Read everything back, as a start does; raises `Corrupt` for a damaged disk."""
        recovery = Recovery()
        recovery.read(self.synced)
        self.synced = self.synced[: len(self.synced) - recovery.torn_bytes]
        recovery.torn_bytes = 0
        self._recovery = recovery

    def stored(self, group: int, members: Members) -> Stored:
        """What a member begins with."""
        remains = self.view_of(group)
        stored = remains.stored(members)
        # The member and the view go on separately from here.
        stored.entries = list(remains.entries)
        return stored
