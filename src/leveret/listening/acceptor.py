"""Accept sockets, and connect each with its protocol after all checks that need no protocol.

    accept ── from a trusted proxy: PROXY header ── admission ── TLS handshake ── protocol
       └────── otherwise ──────────────────────────────┘

The servers of the event loop start TLS at once and report a client only after the handshake. So a
client could take any number of descriptors with handshakes that it never finishes. Here a socket is
counted and may be refused before the first byte is read.

Each socket is prepared by a task of its own, within a deadline. There are at most `PREPARING_MAX`
of these tasks. One more ends the oldest, because an honest client needs only some round trips.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from leveret.addresses import is_loopback, maybe_dual_stack_socket, plain_host, shown_address
from leveret.listening.clients import Client
from leveret.listening.networks import Networks
from leveret.listening.port_hints import AMQP, FIRST_BYTES, PortHints
from leveret.listening.proxy_header import ProxyHeaderError, read_proxy_header
from leveret.listening.refusals import Refusals

log = logging.getLogger(__name__)

BACKLOG: Final = 1024  # clients that wait to be accepted
PREPARING_MAX: Final = 512  # sockets in a PROXY header or TLS handshake, for each listener
BATCH: Final = 16  # sockets that are accepted before other work gets a turn
RETRY_S: Final = 0.1  # wait after a failed accept: there are no descriptors or no memory
REQUEST_BYTES: Final = 65_536  # read of a client without TLS on a port with TLS
TLS_HANDSHAKE: Final = b"\x16"  # first byte of a client that begins TLS
STOP_S: Final = 0.2  # for clients to get their protocols at a stop
# Reasons of OpenSSL in plain words. SSLV3 and TLSV1 in its names say nothing about the version.
_TLS_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that the certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept the certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of the certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate (tls_verify)",
}

MakeProtocol = Callable[[Client], asyncio.BaseProtocol]


class Admission(Protocol):
    """Counts the clients of a front and refuses too many."""

    def enter(self, host: str, descriptor: int) -> bool:
        """Count a new client. Return False, and count nothing, to refuse it."""

    def leave(self, host: str) -> None:
        """Uncount a client that left before it was connected with a protocol."""


class Acceptor:
    """One listener: its sockets, and the tasks that prepare clients."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make_protocol: MakeProtocol,
        admission: Admission,
        *,
        prepare_s: float,
        context: ssl.SSLContext | None = None,
        shutdown_s: float | None = None,
        proxies: Networks | None = None,
        service: str = AMQP,
        hints: PortHints | None = None,
    ) -> None:
        """Listen on bound sockets. `proxies` are peers that must send a PROXY header.

        With TLS, `hints` say which port a client of this service should use that has none.
        """
        self.sockets = sockets
        self._make_protocol = make_protocol
        self._admission = admission
        self._prepare_s = prepare_s  # deadline of the PROXY header, and of the TLS handshake
        self._context = context
        self._shutdown_s = shutdown_s  # deadline for the end of TLS
        self._proxies = proxies if proxies is not None else Networks("")
        self._service = service
        self._hints = hints if hints is not None else PortHints()
        self._preparing: dict[asyncio.Task[None], socket.socket] = {}  # oldest first
        self._ending: dict[asyncio.Task[None], socket.socket] = {}  # cancelled
        self._refusals = Refusals(log)
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}  # after failed accepts
        self._loop = asyncio.get_running_loop()
        for each in sockets:
            self._listen(each)

    async def stop(self) -> None:
        """Stop listening. Clients that are being prepared have `STOP_S` to get their protocols.

        So a request that was sent before the stop is answered.
        """
        for each in self.sockets:
            self._accept(each)
            self._loop.remove_reader(each)
            if each in self._retries:
                self._retries.pop(each).cancel()
            each.close()
        if self._preparing:
            await asyncio.wait(self._preparing, timeout=STOP_S)
        for task in list(self._preparing):
            self._end(task)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending[task] = self._preparing.pop(task)
        task.cancel()

    def _listen(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept the clients that wait, at most `BATCH`."""
        try:
            for _ in range(BATCH):
                self._admit(*listening.accept())
        except (BlockingIOError, ConnectionError):  # none is left, or one was gone already
            pass
        except OSError as fault:
            self._refusals.note(f"accept: {fault.strerror}", "")
            self._loop.remove_reader(listening)
            self._retries[listening] = self._loop.call_later(RETRY_S, self._listen, listening)

    def _admit(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        accepted.setblocking(False)
        host = plain_host(address[0])
        peer = Client(host, address[1], is_loopback(host))
        is_proxy = self._proxies.has(host)
        if not is_proxy and not self._admission.enter(host, accepted.fileno()):
            accepted.close()
            return
        if len(self._preparing) >= PREPARING_MAX:
            self._end(next(iter(self._preparing)))
        task = self._loop.create_task(self._prepare(accepted, peer, is_proxy=is_proxy))
        self._preparing[task] = accepted
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._preparing.pop(task, None)
        accepted = self._ending.pop(task, None)
        if task.cancelled() and accepted is not None:
            accepted.close()  # the task may have been cancelled before it began
        elif not task.cancelled() and task.exception() is not None:
            text = "a new connection was closed because of a bug: please report it"
            log.error(text, exc_info=task.exception())

    async def _prepare(self, accepted: socket.socket, peer: Client, *, is_proxy: bool) -> None:
        client: Client | None = peer
        if is_proxy:
            client = await self._client_behind(accepted, peer)
        if client is None:
            return
        is_connected = False
        try:
            is_connected = await self._connect(accepted, client)
        finally:
            if not is_connected:
                accepted.close()
                self._admission.leave(client.host)

    async def _client_behind(self, accepted: socket.socket, proxy: Client) -> Client | None:
        """Return the client behind a proxy. Close the socket and return None if it is refused."""
        client: Client | None = None
        try:
            async with asyncio.timeout(self._prepare_s):
                client = await read_proxy_header(accepted, proxy)
            if not self._admission.enter(client.host, accepted.fileno()):
                client = None
        except (ProxyHeaderError, TimeoutError, OSError) as fault:
            reason = str(fault) or "the PROXY header did not arrive in time"
            self._refusals.note(reason, proxy.host)
        finally:
            if client is None:
                accepted.close()
        return client

    async def _connect(self, accepted: socket.socket, client: Client) -> bool:
        """Do the TLS handshake, if there is TLS, and connect the protocol."""
        is_secured = self._context is not None
        try:
            if is_secured and not await self._begins_tls(accepted, client):
                return False
            await self._loop.connect_accepted_socket(
                partial(self._make_protocol, client),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._prepare_s if is_secured else None,
                ssl_shutdown_timeout=self._shutdown_s if is_secured else None,
            )
        except (ConnectionError, TimeoutError, ssl.SSLEOFError):  # the client is gone, or too slow
            return False
        except OSError as fault:  # ssl.SSLError is one
            reason = str(getattr(fault, "reason", None) or fault.strerror)
            reason = _TLS_REASONS.get(reason, reason)
            self._refusals.note(f"the TLS handshake failed: {reason}", client.host)
            return False
        return True

    async def _begins_tls(self, accepted: socket.socket, client: Client) -> bool:
        """Return True for a client that begins TLS. Tell another one which port is right."""
        async with asyncio.timeout(self._prepare_s):
            await self._readable(accepted)
        first = accepted.recv(FIRST_BYTES, socket.MSG_PEEK)
        if not first or first[:1] == TLS_HANDSHAKE:
            return True
        refusal = self._hints.without_tls(self._service, first)
        self._refusals.note(refusal.reason, client.host)
        accepted.recv(REQUEST_BYTES)  # the end of a socket with unread bytes loses the answer
        accepted.send(refusal.answer)
        return False

    async def _readable(self, accepted: socket.socket) -> None:
        arrived: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(accepted, _wake, arrived)
        try:
            await arrived
        finally:
            self._loop.remove_reader(accepted)


def _wake(arrived: "asyncio.Future[None]") -> None:
    if not arrived.done():
        arrived.set_result(None)


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host. Port 0 chooses a free port.

    All sockets have the same port. Raises OSError, which names the host and the port.
    """
    try:
        return _bound_sockets(host, port)
    except socket.gaierror:
        raise
    except OSError as fault:
        where = shown_address((host, port))
        reason = os.strerror(fault.errno) if fault.errno is not None else str(fault)
        raise OSError(fault.errno, f"cannot listen on {where}: {reason}") from fault


def _bound_sockets(host: str, port: int) -> list[socket.socket]:
    both = maybe_dual_stack_socket(host, port, BACKLOG)
    if both is not None:
        return [both]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            chosen = (address[0], bound[0].getsockname()[1] if bound else port, *address[2:])
            bound.append(socket.create_server(chosen, family=family, backlog=BACKLOG))
            bound[-1].setblocking(False)
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound
