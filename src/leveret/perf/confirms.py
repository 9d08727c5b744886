"""Publisher confirms, counted: what a producer has sent, and what the broker answered.

Tags are given in order from 1. An answer is for one tag, in any order, or for all up to a tag that
have none yet (`multiple`).

The time to a confirm is that of the last message of a block, from the moment it was sent.

Invariant: every tag up to `_through` is settled, and of the later ones exactly those in `_ahead`.
"""

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.amqp.methods import BASIC_ACK, BASIC_NACK, BASIC_RETURN
from leveret.perf.latency import Histogram
from leveret.perf.protocol import Parser

_BLOCKS_FORGET: Final = 256  # settled blocks that are forgotten at once


class Confirms(Parser):
    """What one producer sent, and what of it is settled."""

    def __init__(self, window: i64, burst: i64) -> None:
        super().__init__()
        self.sent: i64 = 0
        self.confirmed: i64 = 0
        self.nacked: i64 = 0
        self.returned: i64 = 0  # mandatory messages that no queue took
        self.latency = Histogram()
        self._window = window  # 0 = no limit, no confirms
        self._burst = burst
        self._through: i64 = 0
        self._ahead: set[int] = set()
        # The blocks on their way, oldest first from `_block_at` on.
        self._block_tags: list[int] = []
        self._block_times: list[int] = []
        self._block_at: i64 = 0

    def note_block(self, count: i64, now_ns: i64) -> None:
        """A block of so many messages was sent."""
        self.sent += count
        if self._window != 0:
            self._block_tags.append(self.sent)
            self._block_times.append(now_ns)

    def allowed(self) -> i64:
        """How many messages to send now; 0 = wait for confirms first.

        It waits for room for a whole burst, unless nothing is on the way or no burst ever fits.
        """
        if self._window == 0:
            return self._burst
        unsettled = self.unsettled()
        room = self._window - unsettled
        if room >= self._burst:
            return self._burst
        return room if unsettled == 0 or self._window < self._burst else 0

    def unsettled(self) -> i64:
        """Messages that the broker has yet to answer."""
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
        """Count the blocks that are settled whole."""
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
        """One tag is settled; how many that are."""
        if tag == self._through + 1:
            self._through = tag
            self._absorb()
        else:
            self._ahead.add(tag)
        return 1

    def _settle_through(self, tag: i64) -> i64:
        """Every tag up to this one is settled; how many were not before."""
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
