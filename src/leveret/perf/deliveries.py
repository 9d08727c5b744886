"""Deliveries to one consumer: count them, measure their latency, and collect the acks to send.

One ack with `multiple` acknowledges several deliveries. Acks are collected in a buffer, so that one
read leads to one write.

The send time in a body counts only if it is at most an hour old: a queue may hold other messages.

    ack = 01 0001 0000000D 003C0050 tag:u64 01 CE
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from leveret.amqp.methods import BASIC_CANCEL, BASIC_DELIVER
from leveret.errors import ClosedError
from leveret.perf.latency import Histogram
from leveret.perf.protocol import STAMP_BYTES, Parser

_ACK_HEAD: Final = b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50"
_ACK_TAIL: Final = b"\x01\xce"
_LATE_NS_MAX: Final = 3_600_000_000_000


class Deliveries(Parser):
    """Counts the deliveries of one consumer and makes its acks."""

    def __init__(self, ack_every: i64, sample_every: i64) -> None:
        super().__init__()
        self.received: i64 = 0
        self.latency = Histogram()
        self._ack_every = ack_every  # 0 = never
        self._sample_every = sample_every  # 0 = bodies contain no send time
        self._until_sample: i64 = min(1, sample_every)
        self._tag: i64 = 0  # of the delivery being read
        self._done_tag: i64 = 0  # of the last complete delivery
        self._acked_tag: i64 = 0  # all deliveries up to this tag are acknowledged
        self._left: i64 = 0  # body bytes of the current delivery still to come
        self._is_fresh = False  # no byte of its body has arrived
        self._acks = BytesWriter()

    def take_acks(self) -> bytes:
        """Return the collected acks as frames, and clear them."""
        if len(self._acks) == 0:
            return b""
        acks = self._acks.getvalue()
        self._acks.truncate(0)
        return acks

    def on_method(self, method: i64, data: bytes, start: i64, stop: i64) -> None:
        if method == BASIC_DELIVER:
            self._tag = read_i64_be(data, start + 5 + data[start + 4])
        elif method == BASIC_CANCEL:
            raise ClosedError("the broker cancelled the consumer")
        else:
            self.answers.append(data[start:stop])

    def on_header(self, body_bytes: i64) -> None:
        self._left = body_bytes
        self._is_fresh = True
        if body_bytes == 0:
            self._on_message()

    def on_body_start(self, data: bytes, start: i64, size: i64) -> None:
        if self._is_fresh and size >= STAMP_BYTES:
            self._until_sample -= 1
            if self._until_sample == 0:
                self._until_sample = self._sample_every
                late_ns = self.now_ns - read_i64_be(data, start)
                if 0 <= late_ns <= _LATE_NS_MAX:
                    self.latency.add(late_ns)
        self._is_fresh = False

    def on_body_end(self, size: i64) -> None:
        self._left -= size
        if self._left == 0:
            self._on_message()

    def _on_message(self) -> None:
        self.received += 1
        self._done_tag = self._tag
        every = self._ack_every
        if every != 0 and self._tag - self._acked_tag >= every:
            self._ack()

    def ack_rest(self) -> None:
        """Acknowledge all complete deliveries, at the end of a consumer."""
        if self._ack_every != 0 and self._done_tag > self._acked_tag:
            self._ack()

    def _ack(self) -> None:
        self._acked_tag = self._done_tag
        self._acks.write(_ACK_HEAD)
        write_i64_be(self._acks, self._done_tag)
        self._acks.write(_ACK_TAIL)
