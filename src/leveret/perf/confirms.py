"""Publisher confirms of one producer: count sent, confirmed and nacked messages.

Delivery tags count from 1. An answer settles one tag, in any order. With `multiple` it settles all
open tags up to a tag.

The time to confirm is measured per block: from sending it to the confirm of its last message.

Invariant: all tags up to `_through` are settled; of the later tags, exactly those in `_ahead`.
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.amqp.methods import BASIC_ACK, BASIC_NACK, BASIC_RETURN
from leveret.perf.latency import Histogram
from leveret.perf.protocol import Parser

_BLOCKS_FORGET: Final = 256  # delete settled blocks in batches of this size


class Confirms(Parser):
    """Counts what one producer has sent, and what the broker has settled."""

    def __init__(self, window: i64, burst: i64) -> None:
        super().__init__()
        self.sent: i64 = 0
        self.confirmed: i64 = 0
        self.nacked: i64 = 0
        self.returned: i64 = 0  # unroutable mandatory messages
        self.latency = Histogram()
        self._window = window  # 0 = no limit, no confirms
        self._burst = burst
        self._through: i64 = 0
        self._ahead: set[int] = set()
        # Blocks not settled yet, oldest first, from index `_block_at` on.
        self._block_tags: list[int] = []
        self._block_times: list[int] = []
        self._block_at: i64 = 0

    def note_block(self, count: i64, now_ns: i64) -> None:
        """Record that a block of `count` messages is sent."""
        self.sent += count
        if self._window != 0:
            self._block_tags.append(self.sent)
            self._block_times.append(now_ns)

    def allowed(self) -> i64:
        """Return how many messages to send now; 0 = wait for confirms first.

        Less than a burst is allowed only if nothing is unsettled, or if the window is smaller than
        a burst.
        """
        if self._window == 0:
            return self._burst
        unsettled = self.unsettled()
        room = self._window - unsettled
        if room >= self._burst:
            return self._burst
        return room if unsettled == 0 or self._window < self._burst else 0

    def unsettled(self) -> i64:
        """Return the number of messages that the broker has not answered yet."""
        return self.sent - self.confirmed - self.nacked

    def on_method(self, method: i64, data: bytes, start: i64, stop: i64) -> None:
        if method == BASIC_RETURN:
            self.returned += 1
            return
        if (method != BASIC_ACK and method != BASIC_NACK) or stop - start < 13:
            self.answers.append(data[start:stop])
            return
        tag = read_i64_be(data, start + 4)
        count = self._settle_through(tag) if data[start + 12] & 1 else self._settle(tag)
        if method == BASIC_ACK:
            self.confirmed += count
        else:
            self.nacked += count
        self._note_latency()

    def _note_latency(self) -> None:
        """Record the latency of all blocks that are now completely settled."""
        at = self._block_at
        tags = self._block_tags
        while at < len(tags) and tags[at] <= self._through:
            self.latency.add(self.now_ns - self._block_times[at])
            at += 1
        if at >= _BLOCKS_FORGET:
            del self._block_tags[:at]
            del self._block_times[:at]
            at = 0
        self._block_at = at

    def _settle(self, tag: i64) -> i64:
        """Settle one tag. Return 1, the number of newly settled tags."""
        if tag == self._through + 1:
            self._through = tag
            self._absorb()
        else:
            self._ahead.add(tag)
        return 1

    def _settle_through(self, tag: i64) -> i64:
        """Settle all tags up to this one. Return how many were open."""
        count = tag - self._through
        if count <= 0:
            return 0
        if self._ahead:
            early = [other for other in self._ahead if other <= tag]
            self._ahead.difference_update(early)
            count -= len(early)
        self._through = tag
        self._absorb()
        return count

    def _absorb(self) -> None:
        while self._ahead and self._through + 1 in self._ahead:
            self._through += 1
            self._ahead.remove(self._through)
