"""The AMQP server of a node: accept connections, and close them at the end.

`sockets` handles the traffic of a connection and is compiled. This module holds the coroutines,
which compiled code must not have.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from leveret.amqp.admission import Admission
from leveret.amqp.closing import force_close
from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import AmqpFront, ConnectionBase
from leveret.amqp.sockets import AmqpProtocol, Sockets
from leveret.auth.certificates import NameRule, TlsPeer
from leveret.buffered_protocol import adapted
from leveret.listening import (
    AMQP,
    AMQPS,
    Acceptor,
    Client,
    Networks,
    Refusals,
    Relayed,
    bound_sockets,
)

log = logging.getLogger(__name__)


class TurnControl(Protocol):
    """Begin and end turns of the engine: the interface to `leveret.runtime.turns`."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def soon(self) -> None: ...


class AmqpServer:
    """All AMQP connections of a node."""

    def __init__(
        self,
        front: AmqpFront,
        loop: asyncio.AbstractEventLoop,
        turns: TurnControl,
        note_received: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._drained = asyncio.Event()
        self._sockets = Sockets(
            front, loop, turns.begin, turns.end, turns.soon, note_received, self._drained.set
        )
        self.flush = self._sockets.flush
        self.alarms_changed = self._sockets.alarms_changed
        self.buffered_bytes = self._sockets.buffered_bytes
        self._limits = front.limits
        self._hints = front.port_hints
        self._acceptors: list[Acceptor] = []
        self._proxies = Networks("")
        self.admission = Admission(front.limits, Refusals(log).note)
        self._tell_event = front.on_event
        front.on_event = self._on_event

    def _on_event(self, event: str, connection: ConnectionBase, why: str) -> None:
        self.admission.on_event(event, connection)
        self._tell_event(event, connection, why)

    @property
    def protocols(self) -> dict[Connection, AmqpProtocol]:
        """The open connections and their sockets."""
        return self._sockets.protocols

    def listen(
        self, host: str, port: int, context: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections, with TLS if there is a context. Return the bound address."""
        limits = self._limits
        acceptor = Acceptor(
            bound_sockets(host, port),
            self.make_protocol,
            self.admission,
            prepare_s=limits.handshake_ms / 1000,
            context=context,
            shutdown_s=limits.close_ms / 1000,
            proxies=self._proxies,
            service=AMQP if context is None else AMQPS,
            hints=self._hints,
        )
        self._acceptors.append(acceptor)
        name = acceptor.sockets[0].getsockname()
        return name[0], name[1]

    def take_certificates(self, rule: NameRule | None) -> None:
        """Accept certificates of peers as logins, by this rule; None: do not."""
        self._sockets.name_rule = rule

    def trust_proxies(self, proxies: Networks) -> None:
        """Require a PROXY header from these peers. Call this before `listen`."""
        self._proxies = proxies

    def make_protocol(self, client: Client) -> asyncio.BaseProtocol:
        """Return the protocol for the connection of a client that was admitted."""
        return adapted(AmqpProtocol(self._sockets, client), self._loop)

    def make_relayed(self, relayed: Relayed, tls: TlsPeer | None) -> asyncio.BaseProtocol:
        """Return the protocol for a client of another node that was admitted.

        `tls` is the TLS session of the client with that node.
        """
        protocol = AmqpProtocol(self._sockets, relayed.client, relayed, tls)
        return adapted(protocol, self._loop)

    def close(self, connection: Connection, reason: str) -> None:
        """Close one connection."""
        self._turns.begin()
        force_close(connection, reason)
        self._turns.end()

    def access_changed(self, user: str) -> None:
        """Check the open connections of a user again at the end of the turn."""
        self._sockets.changed_users.add(user)

    def user_gone(self, user: str) -> None:
        """Close the connections of a deleted user. RabbitMQ: same text."""
        for connection in self._sockets.connections_of({user}):
            force_close(connection, f"user '{user}' is deleted")
        self._turns.soon()

    def close_vhost(self, name: str) -> None:
        """Close all connections of a vhost that is being deleted. Call this inside a turn."""
        for connection in list(self.protocols):
            vhost = connection.vhost
            if vhost is not None and vhost.name == name:
                force_close(connection, f"vhost '{name}' is deleted")

    async def stop(self, drain_s: float) -> None:
        """Stop listening, close every connection, and wait up to `drain_s` for the answers."""
        self._sockets.stop()
        for acceptor in self._acceptors:
            await acceptor.stop()
        self._turns.begin()
        for connection in list(self.protocols):
            force_close(connection, "broker forced connection closure with reason 'shutdown'")
        self._turns.end()
        if self.protocols:
            self._drained.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), drain_s)
        for protocol in list(self.protocols.values()):
            protocol.abort()
