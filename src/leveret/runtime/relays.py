"""Clients that this node relays to the leader: two connections, joined.

Bytes pass in both directions, and nothing looks at them. A side that does not read stops the
reading of the other side, so memory is bounded by the write buffers of both. The end of one
direction is passed on, and the other direction may go on.

No client keeps a place by being silent. After the leader has ended a connection, its client has
`END_S` to take the rest and to end its side; at most `ENDING_MAX` clients have this time together.
A client that takes none of the bytes that wait for it is disconnected after `UNREAD_S`, as an HTTP
client of the leader is. While the bytes wait, the leader's end is not read, so its close would not
be seen.

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
END_S: Final = 30.0  # for a client to take the rest after the leader has ended the connection
ENDING_MAX: Final = 1024  # clients that have this time together; the oldest one is disconnected
UNREAD_S: Final = 600.0  # for a client to take one of the bytes that wait for it

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
        if other is None or other.has_ended or not other.may_be_told():
            return False
        other.transport.write_eof()
        return self.transport.can_write_eof()

    def may_be_told(self) -> bool:
        """Return True if the end of the other side can be passed on to the peer."""
        return not self.transport.is_closing() and self.transport.can_write_eof()

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


class ClientEnd(RelayEnd):
    """The connection of the client."""

    endings: "_Endings | None" = None  # None: not relayed yet
    _unread: asyncio.TimerHandle | None = None  # set while the client does not read

    def end_soon(self) -> None:
        """Disconnect the client within `END_S`: nothing more comes for it."""
        if self.endings is not None:
            self.endings.begin(self)

    def eof_received(self) -> bool:
        may_go_on = super().eof_received()
        if not may_go_on:
            self.end_soon()
        return may_go_on

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def _watch(self, unread_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._unread = loop.call_later(UNREAD_S, self._check_unread, unread_bytes)

    def _check_unread(self, before_bytes: int) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes < before_bytes:
            self._watch(unread_bytes)
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_watch()

    def _end_watch(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_watch()
        if self.endings is not None:
            self.endings.forget(self)
        super().connection_lost(exc)


class _LeaderEnd(RelayEnd):
    """The connection to the leader."""

    def __init__(self, relays: "Relays", client: ClientEnd) -> None:
        self._relays = relays
        self._client = client
        self.other = client

    def eof_received(self) -> bool:
        self._client.end_soon()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relays.forget(self)
        if self.other is not None:
            self._client.end_soon()
        super().connection_lost(exc)


class _Endings:
    """Clients that the leader has ended, and that may still take the rest; the oldest first."""

    def __init__(self) -> None:
        self._timers: dict[ClientEnd, asyncio.TimerHandle] = {}

    def begin(self, end: ClientEnd) -> None:
        """Disconnect a client after `END_S`, or when there are too many later ones."""
        if end in self._timers:
            return
        if len(self._timers) >= ENDING_MAX:
            oldest = next(iter(self._timers))
            self.forget(oldest)
            oldest.transport.abort()
        loop = asyncio.get_running_loop()
        self._timers[end] = loop.call_later(END_S, end.transport.abort)

    def forget(self, end: ClientEnd) -> None:
        """Drop a client whose connection has ended."""
        timer = self._timers.pop(end, None)
        if timer is not None:
            timer.cancel()


class Relays:
    """All relayed clients of a node."""

    def __init__(self) -> None:
        self._leader = ""  # the node that leads; empty: none is known
        self._leaders: dict[_LeaderEnd, str] = {}  # the leader at the time of the join
        self._opening: set[asyncio.Timeout] = set()  # connections that are being opened
        self._endings = _Endings()

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

    def join(self, client: ClientEnd, relayed: Relayed, early: bytes) -> None:
        """Connect a client with the leader. `early` are bytes that the client has sent already."""
        transport, rest = relayed
        if transport.is_closing() or client.transport.is_closing():
            transport.abort()
            client.transport.abort()
            return
        leader = _LeaderEnd(self, client)
        self._leaders[leader] = self._leader
        client.other = leader
        client.endings = self._endings
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
        end = ClientEnd()
        end.has_ended = has_ended
        client.set_protocol(end)
        end.connection_made(client)
        self.join(end, relayed, early)
