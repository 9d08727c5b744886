"""The public listeners of a node in a cluster. They stay open while the role of the node changes.

A client is served by the fronts of this node while it leads, else it is relayed: the node ends the
client's TLS, opens one connection to the leader for it, tells who the client is (`RelayHead`), and
joins both connections (`relays`).

A client that comes while no node leads waits for `LEADER_WAIT_S`. Then its connection is closed.
Client libraries try again, at this node or at another.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from leveret.addresses import network_of
from leveret.auth.certificates import NameRule, tls_peer
from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import AMQPS, CertificateNames, RelayHead, attach
from leveret.listening import (
    NO_DESCRIPTORS,
    Acceptor,
    Client,
    Networks,
    PortHints,
    Refusals,
    bound_sockets,
)
from leveret.runtime.relays import ClientEnd, Relayed, Relays

log = logging.getLogger(__name__)

LEADER_WAIT_S: Final = 5.0
PREPARE_S: Final = 10.0  # for a PROXY header and for the TLS handshake
TLS_SHUTDOWN_S: Final = 1.0
WAITING_MAX: Final = 1024  # clients that wait for a leader, or for their connection to it
NETWORK_WAITING_MAX: Final = 768  # of them, those of one address: nobody has logged in yet

TOO_MANY: Final = "too many clients wait for a leader"
NO_LEADER: Final = "no node leads"

# Find the server of a client: a protocol of this node, or the leader. Raises ClusterError.
FindServer = Callable[[RelayHead, Client], Awaitable[asyncio.BaseProtocol | Relayed]]


class PublicListeners:
    """All clients of a node in a cluster that its own fronts have not taken."""

    def __init__(
        self,
        find_server: FindServer,
        relays: Relays,
        descriptors_end: int,
        proxies: Networks,
        name_rule: NameRule | None = None,
        relay_fault: Callable[[], str] = str,
        hints: PortHints | None = None,
    ) -> None:
        """Serve clients. Descriptors from `descriptors_end` on are refused; 0: none is.

        `name_rule` says how certificates of AMQP clients name users; None: they are not verified.
        `relay_fault` says why the leader could not be reached for a client; empty: none leads.
        """
        self.name_rule = name_rule
        self._find_server = find_server
        self._relay_fault = relay_fault
        self._relays = relays
        self._descriptors_end = descriptors_end
        self._hints = hints
        self._proxies = proxies  # must send a PROXY header
        self._acceptors: list[Acceptor] = []
        self._refusals = Refusals(log)
        self._clients: set[_ClientEnd] = set()
        self._waiting = Counter[str]()  # clients without a server, by network

    def listen(
        self, service: str, host: str, port: int, context: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept clients of a service, with TLS if there is a context. Return the bound address."""
        sockets = bound_sockets(host, port)
        self._acceptors.append(
            Acceptor(
                sockets,
                partial(self.make_protocol, service),
                self,
                prepare_s=PREPARE_S,
                context=context,
                shutdown_s=TLS_SHUTDOWN_S,
                proxies=self._proxies,
                service=service,
                hints=self._hints,
            )
        )
        bound_host, bound_port = sockets[0].getsockname()[:2]
        return bound_host, bound_port

    def make_protocol(self, service: str, client: Client) -> asyncio.BaseProtocol:
        """Return the protocol for the connection of a client that was admitted."""
        return _ClientEnd(self, service, client)

    def relayed_count(self) -> int:
        """Return the number of clients that are relayed, or wait for a server."""
        return len(self._clients)

    def enter(self, host: str, descriptor: int) -> bool:
        """Count a new client. Return False, and count nothing, to refuse it."""
        if 0 < self._descriptors_end <= descriptor:
            self._refusals.note(NO_DESCRIPTORS, host)
            return False
        network = network_of(host)
        is_full = self._waiting.total() >= WAITING_MAX
        if is_full or self._waiting[network] >= NETWORK_WAITING_MAX:
            self._refusals.note(TOO_MANY, host)
            return False
        self._waiting[network] += 1
        return True

    def leave(self, host: str) -> None:
        """Uncount a client that has got a server, or that has ended without one."""
        network = network_of(host)
        self._waiting[network] -= 1
        if not self._waiting[network]:
            del self._waiting[network]

    async def serve(self, end: "_ClientEnd", head: RelayHead, client: Client) -> None:
        """Give a client to its server, or close its connection."""
        self._clients.add(end)
        try:
            async with asyncio.timeout(LEADER_WAIT_S):
                server = await self._find_server(head, client)
        except (ClusterError, TimeoutError, OSError) as fault:
            self._refusals.note(str(fault) or self._relay_fault() or NO_LEADER, client.host)
            end.abort()
            return
        except Exception:  # a bug: nobody else would close the connection
            log.exception("the connection of %s is closed because of a bug: report it", client.host)
            end.abort()
            return
        finally:
            self.leave(client.host)
        if isinstance(server, tuple):
            end.relay(self._relays, server)
        else:
            self.forget(end)
            end.give_to(server)

    def forget(self, end: "_ClientEnd") -> None:
        """Drop a client that has ended, or that the fronts have taken."""
        self._clients.discard(end)

    def abort_relayed(self) -> None:
        """End the connections of all clients that are relayed, or wait for a server."""
        for end in list(self._clients):
            end.abort()

    async def stop(self) -> None:
        """Accept no more clients, and end the connections of relayed ones."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        self.abort_relayed()


class _ClientEnd(ClientEnd):
    """The connection of the client itself."""

    def __init__(self, listeners: PublicListeners, service: str, client: Client) -> None:
        self._listeners = listeners
        self._service = service
        self._client = client
        self._serving: asyncio.Task[None] | None = None  # while the client has no server
        self._early = b""  # bytes that came before the client had a server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        rule = self._listeners.name_rule if self._service == AMQPS else None
        head = _head_of(self._service, self._client, self.transport, rule)
        self._serving = asyncio.get_running_loop().create_task(
            self._listeners.serve(self, head, self._client)
        )

    def data_received(self, data: bytes) -> None:
        if self._serving is None:
            super().data_received(data)
        else:  # uvloop begins to read after `connection_made`, so pausing there has no effect
            self._early += data
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        if self._serving is None:
            return super().eof_received()
        self.has_ended = True  # the server decides whether the client still gets an answer
        return self.transport.can_write_eof()

    def give_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Let a protocol of this node serve the client from now on."""
        self._serving = None
        attach(self.transport, protocol, self._early, has_ended=self.has_ended)

    def relay(self, relays: Relays, relayed: Relayed) -> None:
        """Connect the client with the leader."""
        self._serving = None
        relays.join(self, relayed, self._early)

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listeners.forget(self)
        if self._serving is not None:
            self._serving.cancel()
        super().connection_lost(exc)


def _head_of(
    service: str, client: Client, transport: asyncio.Transport, rule: NameRule | None
) -> RelayHead:
    """Return the facts about a client that the leader cannot see itself."""
    server = transport.get_extra_info("sockname") or ("", 0)
    head = RelayHead(
        service, client.host, client.port, server[0], server[1], is_local=client.is_local
    )
    secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if secured is None:
        return head
    peer = tls_peer(secured, rule)
    names = CertificateNames(
        peer.login_name, peer.subject, peer.issuer, peer.validity, peer.serial_number
    )
    if names.is_too_long():
        log.warning(
            "a name in the certificate of the client at %s is too long: the certificate is ignored,"
            " so the client cannot log in with it",
            client.host,
        )
        names = CertificateNames()
    return replace(
        head,
        tls_version=peer.version,
        tls_cipher=peer.cipher,
        verifies=peer.offers_external,
        names=names,
    )
