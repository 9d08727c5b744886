"""The leader's knowledge about one follower, and the messages in flight to it.

    PROBE      it is unknown where the logs agree: send one message, then wait for the reply
    REPLICATE  the logs agree: send ahead of the replies, within the window
    SNAPSHOT   the follower needs entries that are removed: send a snapshot, chunk by chunk

`match` is the last entry that the follower is known to have synced; it only grows. `next` is the
next entry to send. The window counts messages and bytes without a reply. A reply to a later message
also counts for all messages before it.
"""

from collections import deque
from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.snapshot import Snapshot

PROBE: Final = 0
REPLICATE: Final = 1
SNAPSHOT: Final = 2


class Progress:
    """The progress of one follower, or of the leader itself."""

    def __init__(self, next_index: i64) -> None:
        self.match: i64 = 0
        self.next: i64 = next_index
        self.state: i64 = PROBE
        self.is_paused = False  # in PROBE: a message is in flight
        self.is_active = False  # heard since the last check of the quorum
        self.is_asleep = False  # has agreed to sleep
        self.commit_sent: i64 = 0  # highest commit index that was sent to it
        self.read_round: i64 = 0  # newest round of reads that it has confirmed
        self.snapshot: Snapshot | None = None  # the snapshot that is being sent
        self.offset: i64 = 0  # offset of the next chunk
        # The window: last index and size of each message without a reply.
        self._ends: deque[int] = deque()
        self._sizes: deque[int] = deque()
        self._bytes: i64 = 0

    def to_probe(self, next_index: i64) -> None:
        self._reset(PROBE)
        self.next = max(next_index, self.match + 1)

    def to_replicate(self) -> None:
        self._reset(REPLICATE)
        self.next = self.match + 1

    def to_snapshot(self, snapshot: Snapshot) -> None:
        self._reset(SNAPSHOT)
        self.snapshot = snapshot
        self.offset = 0

    def _reset(self, state: i64) -> None:
        self.state = state
        self.is_paused = False
        self.snapshot = None
        self._ends.clear()
        self._sizes.clear()
        self._bytes = 0

    def note_sent(self, last: i64, size_bytes: i64) -> None:
        """Note that a message with entries up to `last` is in flight."""
        assert self.state == REPLICATE
        self.next = last + 1
        self._ends.append(int(last))
        self._sizes.append(int(size_bytes))
        self._bytes += size_bytes

    def is_full(self, count_max: i64, bytes_max: i64) -> bool:
        return len(self._ends) >= count_max or self._bytes >= bytes_max

    def on_match(self, index: i64) -> bool:
        """Note that the follower has everything up to `index`; return True if that is new."""
        while self._ends and self._ends[0] <= index:
            self._ends.popleft()
            self._bytes -= self._sizes.popleft()
        self.next = max(self.next, index + 1)
        if index <= self.match:
            return False
        self.match = index
        self.is_paused = False
        return True

    def on_refusal(self, refused: i64, guess: i64) -> bool:
        """Note that the entry before a message did not match; return False for an old message."""
        if self.state == REPLICATE:
            if refused <= self.match:
                return False
            self.to_probe(self.match + 1)
            return True
        if self.state == SNAPSHOT or refused != self.next - 1:
            return False
        self.next = max(min(refused, guess + 1), self.match + 1)
        self.is_paused = False
        return True
