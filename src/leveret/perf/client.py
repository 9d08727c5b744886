"""One blocking AMQP connection with one channel: the handshake, calls, and a polite end.

What the broker sends goes to the `Parser` that the client was given, from the first byte on: a
broker may send deliveries right behind its answer to `basic.consume`. Reading times out every
`WAKE_S`, so that whoever reads can look whether it should stop; sending does not, because a send
that is broken off in the middle of a frame cannot be mended. `hang_up` ends both from outside.
"""

import contextlib
import socket
import struct
import time
from typing import Final

from leveret.amqp.methods import (
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_QOS,
    BASIC_QOS_OK,
    CHANNEL_OPEN,
    CHANNEL_OPEN_OK,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_START_OK,
    CONNECTION_TUNE,
    CONNECTION_TUNE_OK,
    FRAME_METHOD,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE,
    QUEUE_DELETE_OK,
)
from leveret.amqp.writer import Writer
from leveret.errors import Closed
from leveret.perf.load import Load
from leveret.perf.protocol import CHANNEL, FRAME_BYTES, Parser, frame
from leveret.wire.tables import table_of

WAKE_S: Final = 0.1
ANSWER_S: Final = 10.0  # within which a broker must answer a call
# From 128 KiB on, malloc maps and unmaps pages for each read: twice the CPU of a consumer.
READ_BYTES: Final = 114_688
_PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_DURABLE: Final = 2
_NO_ACK: Final = 2


class Client:
    """A connection to the broker of a load."""

    def __init__(self, load: Load, parser: Parser) -> None:
        self.parser = parser
        self._socket = socket.create_connection((load.host, load.port), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of the kernel's costs nothing; Python's own is a poll before each call.
        self._socket.settimeout(None)
        wake = struct.pack("ll", int(WAKE_S), round(WAKE_S % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wake)
        self.send = self._socket.sendall
        try:
            self._shake_hands(load)
        except BaseException:
            self._socket.close()
            raise

    def read(self) -> bool:
        """Feed what has come to the parser; False when nothing came for a while."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            raise Closed("the broker closed the socket")
        self.parser.feed(data, time.monotonic_ns())
        return True

    def call(self, method: Writer, answer: int, channel: int = CHANNEL) -> None:
        """Send a method and wait for its answer."""
        self._send_method(method, channel)
        self._wait_for(answer)

    def declare(self, queue: str, load: Load) -> None:
        """Make a queue as the load wants it."""
        arguments = {"x-queue-type": load.queue_type} if load.queue_type else {}
        method = Writer(QUEUE_DECLARE).short(0).short_string(queue)
        method.octet(_DURABLE if load.durable else 0).table(table_of(arguments))
        self.call(method, QUEUE_DECLARE_OK)

    def delete(self, queue: str) -> None:
        method = Writer(QUEUE_DELETE).short(0).short_string(queue).octet(0)
        self.call(method, QUEUE_DELETE_OK)

    def select_confirms(self) -> None:
        self.call(Writer(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)

    def consume(self, queue: str, load: Load) -> None:
        """Ask for deliveries; they may come before this returns."""
        if load.prefetch:
            self.call(Writer(BASIC_QOS).long(0).short(load.prefetch).octet(0), BASIC_QOS_OK)
        is_stream = load.queue_type == "stream"
        arguments = {"x-stream-offset": "next"} if is_stream else {}
        method = Writer(BASIC_CONSUME).short(0).short_string(queue).short_string("")
        method.octet(0 if load.prefetch else _NO_ACK).table(table_of(arguments))
        self.call(method, BASIC_CONSUME_OK)

    def close(self) -> None:
        """Say goodbye and close the socket, whatever the broker makes of it."""
        method = Writer(CONNECTION_CLOSE).short(200).short_string("").short(0).short(0)
        with contextlib.suppress(OSError, Closed):
            self.call(method, CONNECTION_CLOSE_OK, 0)
        self._socket.close()

    def hang_up(self) -> None:
        """End whatever waits on the socket, from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _shake_hands(self, load: Load) -> None:
        self.send(_PROTOCOL_HEADER)
        self._wait_for(CONNECTION_START)
        secret = f"\0{load.user}\0{load.password}".encode()
        start_ok = Writer(CONNECTION_START_OK).table({}).short_string("PLAIN")
        self.call(start_ok.long_string(secret).short_string("en_US"), CONNECTION_TUNE, 0)
        self._send_method(Writer(CONNECTION_TUNE_OK).short(CHANNEL).long(FRAME_BYTES).short(0), 0)
        opened = Writer(CONNECTION_OPEN).short_string(load.vhost).short_string("").octet(0)
        self.call(opened, CONNECTION_OPEN_OK, 0)
        self.call(Writer(CHANNEL_OPEN).short_string(""), CHANNEL_OPEN_OK)

    def _send_method(self, method: Writer, channel: int) -> None:
        self.send(frame(FRAME_METHOD, channel, method.payload()))

    def _wait_for(self, method: int) -> None:
        wanted = method.to_bytes(4, "big")
        deadline_s = time.monotonic() + ANSWER_S
        while not any(payload.startswith(wanted) for payload in self.parser.answers):
            self.read()
            if time.monotonic() > deadline_s:
                raise Closed(f"no answer within {ANSWER_S:.0f} s")
        self.parser.answers.clear()
