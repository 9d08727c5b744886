"""Clients that this node relays to the leader: two connections, joined.

Bytes pass in both directions, and nothing looks at them. A side that does not read stops the
reading of the other side, so memory is bounded by the write buffers of both. The end of one
direction is passed on, and the other direction may go on.

A leader that is frozen or cut off says nothing, and does not close its connections. So clients that
are still relayed to it are disconnected `NEW_LEADER_S` after another node leads. Until then the old
leader may tell them itself why it closes their connections. While no node is known to lead, they
wait for `NO_LEADER_S`, because the same node may lead again. A connection that is being opened to
the old leader is given up at once.
"""

import asyncio
import socket
from collections.abc import Awaitable
from typing import Final, cast

from leveret.cluster.relay import attach

BUFFER_BYTES: Final = 262_144  # for each direction of a relayed client; then reading stops
NEW_LEADER_S: Final = 1.0
NO_LEADER_S: Final = 5.0

# A connection to the leader and the bytes that came from it already.
Relayed = tuple[asyncio.Transport, bytes]


class RelayEnd(asyncio.Protocol):
    """One of the two connections of a client. Everything that comes goes to the other one."""

    transport: asyncio.Transport
    other: "RelayEnd | None" = None  # None: not connected yet, or ended
    has_ended = False  # the peer has ended its side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass the end of the input on. The other direction may go on."""
        self.has_ended = True
        other = self.other
        if other is None or other.has_ended or not other.transport.can_write_eof():
            return False
        other.transport.write_eof()
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other = self.other, None
        if other is None:
            return
        other.other = None
        if exc is not None:
            other.transport.abort()
        else:
            other.transport.close()  # after the bytes that it has not sent yet


class _LeaderEnd(RelayEnd):
    """The connection to the leader."""

    def __init__(self, relays: "Relays") -> None:
        self._relays = relays

    def connection_lost(self, exc: Exception | None) -> None:
        self._relays.forget(self)
        super().connection_lost(exc)


class Relays:
    """All relayed clients of a node."""

    def __init__(self) -> None:
        self._leader = ""  # the node that leads; empty: none is known
        self._leaders: dict[_LeaderEnd, str] = {}  # the leader at the time of the join
        self._opening: set[asyncio.Timeout] = set()  # connections that are being opened

    def on_leader(self, leader: str) -> None:
        """Note which node leads now; empty: none is known."""
        self._leader = leader
        loop = asyncio.get_running_loop()
        for opening in self._opening:
            opening.reschedule(loop.time())
        self._opening.clear()
        if self._leaders:
            loop.call_later(NEW_LEADER_S if leader else NO_LEADER_S, self._end_others, leader)

    def _end_others(self, leader: str) -> None:
        """Disconnect the clients of all other nodes, if this one still leads; empty: of all."""
        if leader != self._leader:  # a later change has its own timer
            return
        for end, joined in list(self._leaders.items()):
            if joined != leader:
                end.transport.abort()

    async def open(self, relay: Awaitable[Relayed]) -> Relayed | None:
        """Wait for a connection to the leader; return None if another node leads before."""
        opening = asyncio.timeout(None)
        self._opening.add(opening)
        try:
            async with opening:
                return await relay
        except TimeoutError:
            if not opening.expired():
                raise
            return None
        finally:
            self._opening.discard(opening)

    def forget(self, end: _LeaderEnd) -> None:
        """Drop a connection to the leader that has ended."""
        self._leaders.pop(end, None)

    def join(self, client: RelayEnd, relayed: Relayed, early: bytes) -> None:
        """Connect a client with the leader. `early` are bytes that the client has sent already."""
        transport, rest = relayed
        if transport.is_closing() or client.transport.is_closing():
            transport.abort()
            client.transport.abort()
            return
        leader = _LeaderEnd(self)
        self._leaders[leader] = self._leader
        client.other, leader.other = leader, client
        attach(transport, leader, rest)
        if early:
            transport.write(early)
        if client.has_ended:
            if transport.can_write_eof():
                transport.write_eof()
        elif not client.transport.is_closing() and not client.transport.is_reading():
            client.transport.resume_reading()

    def take(
        self, client: asyncio.Transport, relayed: Relayed, early: bytes, *, has_ended: bool
    ) -> None:
        """Relay a client whose connection another protocol had until now.

        `has_ended`: the client has ended its side, and waits for the rest of the answer.
        """
        end = RelayEnd()
        end.has_ended = has_ended
        client.set_protocol(end)
        end.connection_made(client)
        self.join(end, relayed, early)
