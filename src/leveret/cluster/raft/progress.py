"""The leader's knowledge about one follower, and the messages in flight to it.

    PROBE      it is unknown where the logs agree: send one message, then wait for the reply
    REPLICATE  the logs agree: send ahead of the replies, within the limits
    COPY       the follower needs blocks that are in no log file: the host copies the directory

`match` is the last block that the follower is known to have synced. It grows, unless the follower
says that it has lost blocks (`losses`). `next` is the next block to send. The limits count messages
and bytes without a reply. A reply to a later message also counts for all messages before it.
"""

from collections import deque
from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.ready import ReadRequest

PROBE: Final = 0
REPLICATE: Final = 1
COPY: Final = 2

STATE_NAMES: Final = ("probe", "replicate", "copy")


class Progress:
    """The progress of one follower, or of the leader itself."""

    def __init__(self, next_index: i64, tick: i64) -> None:
        self.match: i64 = 0
        self.next: i64 = next_index
        self.state: i64 = PROBE
        self.since_tick: i64 = tick  # since when it is in this state
        self.heard_tick: i64 = tick  # when it was last heard; silence that does not count is added
        self.contact_tick: i64 = tick  # when it was really last heard
        self.has_lost_link = False  # its link was closed, and it was not heard since
        self.is_paused = False  # in PROBE: a message is in flight
        self.losses: i64 = 0  # how often it has lost blocks, as far as known
        self.is_drained = False  # it leads only if no other member can
        self.commit_sent: i64 = 0  # highest commit index that was sent to it
        self.read: ReadRequest | None = None  # blocks that the host is reading for it
        self.copy_tick: i64 = 0  # a copy may be asked for from then on
        # The last index and the size of each message without a reply.
        self._ends: deque[int] = deque()
        self._sizes: deque[int] = deque()
        self._bytes: i64 = 0

    def to_probe(self, next_index: i64, tick: i64) -> None:
        self._reset(PROBE, tick)
        self.next = max(next_index, self.match + 1)

    def to_replicate(self, tick: i64) -> None:
        self._reset(REPLICATE, tick)
        self.next = self.match + 1

    def to_copy(self, tick: i64) -> None:
        self._reset(COPY, tick)

    def note_losses(self, losses: i64, last_index: i64, tick: i64) -> None:
        """Forget all acknowledgements of a follower that has lost blocks."""
        assert losses > self.losses
        self.losses = losses
        self.match = 0
        self.commit_sent = 0
        if self.state != COPY:
            self.to_probe(last_index + 1, tick)

    def _reset(self, state: i64, tick: i64) -> None:
        if state != self.state:
            self.state = state
            self.since_tick = tick
        self.is_paused = False
        self._ends.clear()
        self._sizes.clear()
        self._bytes = 0

    def note_sent(self, last: i64, size_bytes: i64) -> None:
        """Note that a message with blocks up to `last` is in flight."""
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

    def on_refusal(self, refused: i64, guess: i64, tick: i64) -> bool:
        """Note that the block before a message did not match; return False for an old message."""
        if self.state == REPLICATE:
            if refused <= self.match:
                return False
            self.to_probe(self.match + 1, tick)
            return True
        if self.state == COPY or refused != self.next - 1:
            return False
        if refused <= self.match:
            return False  # it has lost a block that it had: the next heartbeat lets it notice
        self.next = max(min(refused, guess + 1), self.match + 1)
        self.is_paused = False
        return True
