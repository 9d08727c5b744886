"""Simulated TCP connections between nodes, and their faults.

A connection keeps the order of its bytes and loses none while it lives, as TCP does. Bytes are
delayed and arrive in pieces of any size. Faults are set by direction:

- `cut`: nothing arrives in that direction. The bytes wait, as TCP sends them again; `heal` lets
  them arrive. A connect across a cut fails after a timeout.
- `slow`: everything arrives later in that direction.
- `reset`: open connections between two nodes break.
- A killed process closes its connections, and its peers notice (if the way to them is not cut). A
  machine that loses power says nothing: its peers notice only by silence.

Node names are host names. Every node has one address per name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, cast

from tests.simulated.loop import NodeLoop
from tests.simulated.schedule import Schedule

DELAY_S: Final = (0.00005, 0.001)  # from one node to another, at random
CONNECT_S: Final = 3.0  # a connect without an answer fails after this time
PIECE_BYTES: Final = 65_536  # one arrival has at most this many bytes
HIGH_WATER_BYTES: Final = 65_536


class Server:
    """A listening address."""

    def __init__(
        self,
        network: Network,
        loop: NodeLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
    ) -> None:
        self.network = network
        self.loop = loop
        self.factory = factory
        self.address = address
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self.network.forget(self)

    async def wait_closed(self) -> None:
        """Return at once: a closed address accepts nothing more."""


class End(asyncio.Transport):
    """One end of a connection, as the transport of a node."""

    def __init__(self, network: Network, loop: NodeLoop, address: tuple[str, int]) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.address = address
        self.peer: End = self
        self.protocol: asyncio.BaseProtocol | None = None
        self.is_ended = False  # the protocol was told, or its process is gone
        self._is_closing = False
        self._is_reading = True
        self._is_eof_sent = False
        self._high_bytes = HIGH_WATER_BYTES
        self._is_paused = False
        self.on_way: deque[bytes | None] = deque()  # bytes for the peer; None: the end of them
        self.on_way_bytes = 0
        self.is_travelling = False  # an arrival at the peer is scheduled

    # Methods of asyncio's transports.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer.address, "sockname": self.address}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self.is_ended

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def is_reading(self) -> bool:
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.network.send_on(self.peer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self.on_way_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing() or self._is_eof_sent or not data:
            return
        self.on_way.append(bytes(data))
        self.on_way_bytes += len(data)
        self.network.send_on(self)
        if self.on_way_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self.loop.run_inside(self.get_protocol().pause_writing)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_eof_sent and not self.is_closing():
            self._is_eof_sent = True
            self.on_way.append(None)
            self.network.send_on(self)

    def close(self) -> None:
        if not self.is_closing():
            self.write_eof()
            self._is_closing = True
            self.loop.call_soon(self.end, None)

    def abort(self) -> None:
        if not self.is_ended:
            self._is_closing = True
            self.loop.call_soon(self.end, None)
            self.network.break_later(self.peer)

    # The network's side.

    def end(self, error: Exception | None) -> None:
        """Tell the protocol that the connection is gone."""
        if self.is_ended or not self.loop.when_running(lambda: self.end(error)):
            return
        self.is_ended = True
        self._is_closing = True
        protocol, self.protocol = self.protocol, None  # as asyncio's transports forget it
        if protocol is not None and self.loop.is_alive:
            self.loop.run_inside(lambda: protocol.connection_lost(error))

    def take(self) -> bytes | None:
        """Return the next bytes for the peer, at most one piece; None is the end."""
        if self.on_way[0] is None:
            self.on_way.popleft()
            return None
        size = self.network.schedule.rng.choice((PIECE_BYTES, PIECE_BYTES, 1, 100, 4096))
        data = self.on_way.popleft()
        assert data is not None
        if len(data) > size:
            self.on_way.appendleft(data[size:])
            data = data[:size]
        self.on_way_bytes -= len(data)
        return data

    def on_taken(self) -> None:
        """Let the protocol write on when its bytes have arrived."""
        if self._is_paused and self.on_way_bytes <= self._high_bytes // 4:
            self._is_paused = False
            if not self.is_ended and self.loop.is_alive:
                self.loop.run_inside(self.get_protocol().resume_writing)

    def on_arrived(self, data: bytes | None) -> None:
        """Give bytes to the protocol, or the end of the peer's bytes."""
        if self.is_ended or not self.loop.is_alive or self.protocol is None:
            return
        # A node's own protocols have the methods of asyncio's classes, not always the base class.
        protocol = cast(asyncio.Protocol, self.protocol)
        if data is None:
            if not self.loop.run_inside(protocol.eof_received):
                self.close()
        elif hasattr(protocol, "get_buffer"):
            buffered = cast(asyncio.BufferedProtocol, protocol)
            self.loop.run_inside(partial(self._fill, buffered, data))
        else:
            self.loop.run_inside(partial(protocol.data_received, data))

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        """Copy bytes into the protocol's own buffer, as often as it takes."""
        while data and not self.is_ended:
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            protocol.buffer_updated(size)


class Network:
    """All connections of a world."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.delay_s = DELAY_S
        self._servers: dict[tuple[str, int], Server] = {}
        self._ends: dict[End, None] = {}  # a dict keeps their order
        self._cuts: set[tuple[str, str]] = set()
        self._slow_s: dict[tuple[str, str], float] = {}
        self._port = 40_000

    def listen(
        self,
        loop: NodeLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> Server:
        """Accept connections at an address of a node. Port 0 chooses a port."""
        if port == 0:
            self._port += 1
            port = self._port
        address = (loop.name, port)
        if address in self._servers:
            raise OSError(98, f"the address {address} is in use")
        server = self._servers[address] = Server(self, loop, factory, address)
        return server

    def forget(self, server: Server) -> None:
        """Accept no more connections at an address."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self,
        loop: NodeLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection; raise OSError if nobody listens, or nothing comes back."""
        await asyncio.sleep(self._delay_s())
        server = self._servers.get((host, port))
        if self.is_cut(loop.name, host) or self.is_cut(host, loop.name):
            await asyncio.sleep(CONNECT_S)
            raise TimeoutError(110, f"no answer from {host}")
        if server is not None and server.loop.paused_until_s > self.schedule.now_s:
            await asyncio.sleep(CONNECT_S)
            raise TimeoutError(110, f"no answer from {host}")
        if server is None or not server.loop.is_alive:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        self._port += 1
        near = End(self, loop, (loop.name, self._port))
        far = End(self, server.loop, server.address)
        near.peer, far.peer = far, near
        near.protocol = factory()
        far.protocol = server.loop.run_inside(server.factory)
        self._ends[near] = self._ends[far] = None
        accepted = far.protocol
        server.loop.run_inside(lambda: accepted.connection_made(far))
        near.protocol.connection_made(near)
        return near, near.protocol

    def _delay_s(self) -> float:
        return self.schedule.rng.uniform(*self.delay_s)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing arrive from one node at another."""
        self._cuts.add((source, target))

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Let everything from one node arrive later at another."""
        self._slow_s[(source, target)] = delay_s

    def heal(self) -> None:
        """End all cuts, and all delays of `slow`."""
        self._cuts.clear()
        self._slow_s.clear()
        for end in list(self._ends):
            self.send_on(end)

    def send_on(self, end: End) -> None:
        """Schedule the next arrival of an end's bytes at its peer."""
        peer = end.peer
        if end.is_travelling or not end.on_way or not peer._is_reading:
            return
        if self.is_cut(end.loop.name, peer.loop.name) or peer.is_ended:
            return
        end.is_travelling = True
        slow_s = self._slow_s.get((end.loop.name, peer.loop.name), 0.0)
        self.schedule.after(self._delay_s() + slow_s, lambda: self._arrive(end))

    def _arrive(self, end: End) -> None:
        if not end.peer.loop.when_running(lambda: self._arrive(end)):
            return
        end.is_travelling = False
        peer = end.peer
        if not end.on_way or not peer._is_reading:
            return
        if self.is_cut(end.loop.name, peer.loop.name):
            return
        data = end.take()
        end.on_taken()
        peer.on_arrived(data)
        self.send_on(end)

    def break_later(self, end: End) -> None:
        """Let an end notice that its connection is broken, unless the way to it is cut."""
        if not self.is_cut(end.peer.loop.name, end.loop.name):
            error = ConnectionResetError(104, "the peer has closed the connection")
            self.schedule.after(self._delay_s(), lambda: end.end(error))

    def reset(self, first: str, second: str) -> None:
        """Break the open connections between two nodes."""
        for end in list(self._ends):
            if {end.loop.name, end.peer.loop.name} == {first, second} and not end.is_ended:
                self.break_later(end)

    def kill(self, loop: NodeLoop, *, is_silent: bool = False) -> None:
        """End a node's process. Its peers notice, unless its machine lost power (`is_silent`)."""
        loop.kill()
        for server in [s for s in self._servers.values() if s.loop is loop]:
            self.forget(server)
        for end in list(self._ends):
            if end.loop is loop:
                end.is_ended = True
                if not is_silent and not end.peer.is_ended:
                    self.break_later(end.peer)
        self._ends = {end: None for end in self._ends if not (end.is_ended and end.peer.is_ended)}
