"""Blocking connections, each with a deadline on everything it does.

A `ConnectionPool` keeps idle connections, so that a call costs no new connection; threads share it.
A connection that the server closed meanwhile is noticed before it is used: a call must not be lost
to it.
"""

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from leveret.errors import system_reason
from leveret.http_client.address import Address
from leveret.http_client.answers import BODY_BYTES_MAX, Answer, AnswerReader
from leveret.http_client.errors import CallTimeoutError, UnreachableError
from leveret.http_client.streamed_answer import READ_BYTES, StreamedAnswer

IDLE_MAX: Final = 32  # connections kept for later calls


class Connection:
    """One connection; one call at a time."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._shown = address.shown
        try:
            self._socket = _connect(address, timeout_s)
        except TimeoutError as fault:
            raise UnreachableError(f"{address.shown} cannot be reached", was_sent=False) from fault
        except (OSError, UnicodeError) as fault:
            reason = system_reason(fault)
            raise UnreachableError(f"{address.shown}: {reason}", was_sent=False) from fault

    def ask(
        self, request: bytes, deadline_s: float, body_bytes_max: int = BODY_BYTES_MAX
    ) -> Answer:
        """Send a request and return its answer, until a time of the monotonic clock."""
        try:
            self._socket.settimeout(_left_s(deadline_s))
            self._socket.sendall(request)
            reader = AnswerReader(body_bytes_max)
            while data := self._socket.recv(READ_BYTES):
                answer = reader.feed(data)
                if answer is not None:
                    return answer
                self._socket.settimeout(_left_s(deadline_s))
        except TimeoutError as fault:
            raise CallTimeoutError(f"{self._shown} did not answer in time") from fault
        except OSError as fault:
            raise UnreachableError(f"{self._shown}: {system_reason(fault)}") from fault
        answer = reader.feed_end()
        if answer is None:
            raise UnreachableError(f"{self._shown} closed the connection")
        return answer

    def ask_streamed(self, request: Iterable[bytes], timeout_s: float) -> StreamedAnswer:
        """Send a request piece by piece; return its answer when its head has come.

        `timeout_s` limits each step, not the whole call.
        """
        self._socket.settimeout(timeout_s)
        try:
            # A server that refuses a large body answers and closes without reading to the end.
            with suppress(BrokenPipeError, ConnectionResetError):
                for piece in request:
                    self._socket.sendall(piece)
        except TimeoutError as fault:
            raise CallTimeoutError(f"{self._shown} did not answer in time") from fault
        except OSError as fault:
            raise UnreachableError(f"{self._shown}: {system_reason(fault)}") from fault
        return StreamedAnswer(self._socket, self._shown)

    def is_usable(self) -> bool:
        """Return True if neither bytes nor the end of the connection came since the last answer."""
        return not is_readable(self._socket.fileno())

    def close(self) -> None:
        self._socket.close()


def ask_once(
    address: Address, request: bytes, timeout_s: float, body_bytes_max: int = BODY_BYTES_MAX
) -> Answer:
    """Send one request on a connection of its own and return the answer."""
    deadline_s = time.monotonic() + timeout_s
    connection = Connection(address, timeout_s)
    try:
        return connection.ask(request, deadline_s, body_bytes_max)
    finally:
        connection.close()


def is_readable(descriptor: int) -> bool:
    """Return True if a socket has bytes to read, or was closed by its peer."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _connect(address: Address, timeout_s: float) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls is None:
        return plain
    try:
        return address.tls.wrap_socket(plain, server_hostname=address.host)
    except (OSError, ssl.SSLError):
        plain.close()
        raise


class ConnectionPool:
    """Idle connections to one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._is_closed = False

    def take(self, timeout_s: float) -> Connection:
        """Return the connection that was used last, or a new one."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise UnreachableError("the client is closed", was_sent=False)
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return Connection(self._address, timeout_s)
            if connection.is_usable():
                return connection
            connection.close()

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections, and each other one when it is given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()
