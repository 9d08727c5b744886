"""Connections of the plain client: sockets that block, each with a deadline on everything it does.

A `Connections` keeps those that are idle, so that a call costs no new connection; threads share
it. One
that the service closed meanwhile is noticed before it is used: a call must not be lost to it.
"""

import select
import socket
import ssl
import threading
import time
from collections import deque
from typing import Final

from leveret.jobs.client.address import Address
from leveret.jobs.client.errors import CallTimeoutError, UnreachableError
from leveret.jobs.client.http1 import Answer, AnswerReader

IDLE_MAX: Final = 32  # connections kept for later calls
_READ_BYTES: Final = 256 * 1024


class Connection:
    """One connection; one call at a time."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._shown = address.shown
        try:
            self._socket = _connected(address, timeout_s)
        except TimeoutError as fault:
            raise UnreachableError(f"{address.shown} cannot be reached", was_sent=False) from fault
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise UnreachableError(f"{address.shown}: {reason}", was_sent=False) from fault

    def ask(self, request: bytes, deadline: float) -> Answer:
        """Send a request and wait for its answer, until a time of the monotonic clock."""
        try:
            self._socket.settimeout(_left_s(deadline))
            self._socket.sendall(request)
            reader = AnswerReader()
            while data := self._socket.recv(_READ_BYTES):
                answer = reader.feed(data)
                if answer is not None:
                    return answer
                self._socket.settimeout(_left_s(deadline))
        except TimeoutError as fault:
            raise CallTimeoutError(f"{self._shown} did not answer in time") from fault
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise UnreachableError(f"{self._shown}: {reason}", was_sent=True) from fault
        raise UnreachableError(f"{self._shown} closed the connection", was_sent=True)

    def is_usable(self) -> bool:
        """Whether nothing came since the last answer: an end, for one."""
        return not has_news(self._socket.fileno())

    def close(self) -> None:
        self._socket.close()


def has_news(descriptor: int) -> bool:
    """Whether a socket has something to read, its end included."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _connected(address: Address, timeout_s: float) -> socket.socket:
    plain = socket.create_connection((address.host, address.port), timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls is None:
        return plain
    try:
        return address.tls.wrap_socket(plain, server_hostname=address.host)
    except (OSError, ssl.SSLError):
        plain.close()
        raise


class Connections:
    """Idle connections to one address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._is_closed = False

    def take(self, timeout_s: float) -> Connection:
        """The connection that was used last, since it is the warmest, or a new one."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise UnreachableError("the client is closed", was_sent=False)
                link = self._idle.pop() if self._idle else None
            if link is None:
                return Connection(self._address, timeout_s)
            if link.is_usable():
                return link
            link.close()

    def give_back(self, link: Connection) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_MAX:
                self._idle.append(link)
                return
        link.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, deque()
        for link in idle:
            link.close()
