"""One blocking AMQP connection with one channel: handshake, calls and close.

All received bytes go to the `Parser`, from the first byte on: a broker may send deliveries directly
after its answer to `basic.consume`.

Reads time out now and then, so that the caller can check whether to stop. Sends have no timeout: a
send that stops in the middle of a frame would corrupt the connection. Python's TLS sockets cannot
have a timeout for reads only; their reads block until `hang_up` shuts the socket down.
"""

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
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
    EXCHANGE_DECLARE,
    EXCHANGE_DECLARE_OK,
    EXCHANGE_DELETE,
    EXCHANGE_DELETE_OK,
    FRAME_METHOD,
    PROTOCOL_HEADER,
    QUEUE_BIND,
    QUEUE_BIND_OK,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE,
    QUEUE_DELETE_OK,
)
from leveret.amqp.writer import MethodWriter
from leveret.errors import ClosedError
from leveret.perf.load import Load, Pairs
from leveret.perf.protocol import CHANNEL, FRAME_BYTES, Parser, frame
from leveret.wire.tables import table_of

# Without this the broker only closes the socket after a wrong password.
_CLIENT_PROPERTIES = table_of({"capabilities": {"authentication_failure_close": True}})

ANSWER_S: Final = 10.0  # time limit for the answer to a call
# From 128 KiB on, malloc maps and unmaps pages for each read, which doubles a consumer's CPU time.
READ_BYTES: Final = 114_688
_DURABLE: Final = 2
_NO_ACK: Final = 2
_NO_WAIT: Final = 1


class Client:
    """A connection to the broker of a load."""

    def __init__(self, load: Load, parser: Parser) -> None:
        self.parser = parser
        self.is_hung_up = False
        self.has_read_timeout = not load.tls
        self._socket = _connect(load)
        self.send = self._socket.sendall
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        try:
            self._shake_hands(load)
        except BaseException:
            self._socket.close()
            raise

    def read(self) -> bool:
        """Read once and feed the parser. Return False if nothing arrived before the timeout."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            if self.is_hung_up:
                return False
            raise ClosedError("the broker closed the socket")
        self.parser.feed(data, time.monotonic_ns())
        return True

    def read_within(self, wait_s: float) -> bool:
        """Read like `read`, but wait at most `wait_s`."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return self.read()
        return bool(self._poll.poll(wait_s * 1000)) and self.read()

    def call(self, method: MethodWriter, answer: int, channel: int = CHANNEL) -> None:
        """Send a method and wait for its answer."""
        self._send_method(method, channel)
        self._wait_for(answer)

    def declare(self, queue: str, load: Load) -> None:
        """Declare a queue with the type and arguments of the load."""
        arguments = dict(load.queue_arguments)
        if load.queue_type:
            arguments["x-queue-type"] = load.queue_type
        method = MethodWriter(QUEUE_DECLARE).short(0).short_string(queue)
        method.octet(_DURABLE if load.durable else 0).table(table_of(arguments))
        self.call(method, QUEUE_DECLARE_OK)

    def delete(self, queue: str) -> None:
        method = MethodWriter(QUEUE_DELETE).short(0).short_string(queue).octet(0)
        self.call(method, QUEUE_DELETE_OK)

    def declare_exchange(self, exchange: str, kind: str, durable: bool) -> None:
        method = MethodWriter(EXCHANGE_DECLARE).short(0).short_string(exchange).short_string(kind)
        method.octet(_DURABLE if durable else 0).table({})
        self.call(method, EXCHANGE_DECLARE_OK)

    def delete_exchange(self, exchange: str) -> None:
        method = MethodWriter(EXCHANGE_DELETE).short(0).short_string(exchange).octet(0)
        self.call(method, EXCHANGE_DELETE_OK)

    def bind(self, queue: str, exchange: str, keys: Sequence[str], arguments: Pairs = ()) -> None:
        """Bind a queue with each key. Wait only for the answer to the last one."""
        table = table_of(dict(arguments))
        for index, key in enumerate(keys):
            is_last = index == len(keys) - 1
            method = MethodWriter(QUEUE_BIND).short(0).short_string(queue).short_string(exchange)
            method.short_string(key).octet(0 if is_last else _NO_WAIT).table(table)
            if is_last:
                self.call(method, QUEUE_BIND_OK)
            else:
                self._send_method(method, CHANNEL)

    def select_confirms(self) -> None:
        self.call(MethodWriter(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)

    def consume(self, queue: str, load: Load) -> None:
        """Start a consumer. Deliveries may arrive before this returns."""
        if load.prefetch:
            self.call(MethodWriter(BASIC_QOS).long(0).short(load.prefetch).octet(0), BASIC_QOS_OK)
        arguments = stream_arguments(load.stream_offset) if load.queue_type == "stream" else {}
        method = MethodWriter(BASIC_CONSUME).short(0).short_string(queue).short_string("")
        method.octet(0 if load.prefetch else _NO_ACK).table(table_of(arguments))
        self.call(method, BASIC_CONSUME_OK)

    def close(self) -> None:
        """Close the connection and the socket, even if the broker does not answer."""
        method = MethodWriter(CONNECTION_CLOSE).short(200).short_string("").short(0).short(0)
        with contextlib.suppress(OSError, ClosedError):
            self.call(method, CONNECTION_CLOSE_OK, 0)
        self._socket.close()

    def hang_up(self) -> None:
        """Shut the socket down, which ends all waiting reads and sends. Any thread may call it."""
        self.is_hung_up = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _shake_hands(self, load: Load) -> None:
        self.send(PROTOCOL_HEADER)
        self._wait_for(CONNECTION_START)
        secret = f"\0{load.user}\0{load.password}".encode()
        start_ok = MethodWriter(CONNECTION_START_OK).table(_CLIENT_PROPERTIES).short_string("PLAIN")
        self.call(start_ok.long_string(secret).short_string("en_US"), CONNECTION_TUNE, 0)
        self._send_method(
            MethodWriter(CONNECTION_TUNE_OK).short(CHANNEL).long(FRAME_BYTES).short(0), 0
        )
        opened = MethodWriter(CONNECTION_OPEN).short_string(load.vhost).short_string("").octet(0)
        self.call(opened, CONNECTION_OPEN_OK, 0)
        self.call(MethodWriter(CHANNEL_OPEN).short_string(""), CHANNEL_OPEN_OK)

    def _send_method(self, method: MethodWriter, channel: int) -> None:
        self.send(frame(FRAME_METHOD, channel, method.payload()))

    def _wait_for(self, method: int) -> None:
        wanted = method.to_bytes(4, "big")
        deadline_s = time.monotonic() + ANSWER_S
        while not any(payload.startswith(wanted) for payload in self.parser.answers):
            self.read_within(max(0.0, deadline_s - time.monotonic()))
            if time.monotonic() > deadline_s or self.is_hung_up:
                raise ClosedError(f"no answer within {ANSWER_S:.0f} s")
        self.parser.answers.clear()


def stream_arguments(offset: str) -> dict[str, object]:
    """Return the consumer argument for a position in a stream: a word, an age or an offset."""
    return {"x-stream-offset": int(offset) if offset.isdecimal() else offset}


def _connect(load: Load) -> socket.socket:
    plain = socket.create_connection((load.host, load.port), ANSWER_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if load.tls:
        return _wrap_tls(plain, load)
    # A timeout in the kernel is free. Python's own timeout costs a poll before each call.
    plain.settimeout(None)
    wake = struct.pack("ll", int(load.wake_s), round(load.wake_s % 1 * 1e6))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wake)
    return plain


def _wrap_tls(plain: socket.socket, load: Load) -> socket.socket:
    context = ssl.create_default_context(cafile=load.tls_ca or None)
    if not load.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        tls_socket = context.wrap_socket(plain, server_hostname=load.host)
    except BaseException:
        plain.close()
        raise
    tls_socket.settimeout(None)
    return tls_socket
