"""A line between a client and its server that a test can reset, let go silent, or stall."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

READ_BYTES: Final = 65_536
HOST: Final = "127.0.0.1"
CLOSE_S: Final = 60.0


class Way(Enum):
    """A direction of a line."""

    OUT = "from the client to the server"
    BACK = "from the server to the client"


BOTH: Final = (Way.OUT, Way.BACK)


class Line:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._ends = (client, broker)
        self.port: int = client.get_extra_info("peername")[1]
        self._passes = {Way.OUT: asyncio.Event(), Way.BACK: asyncio.Event()}
        self.flow()

    async def carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: Way
    ) -> None:
        passes = self._passes[way]
        with contextlib.suppress(OSError):
            while data := await source.read(READ_BYTES):
                await passes.wait()
                if target.is_closing():
                    break
                target.write(data)
                await target.drain()
            # A line that went silent does not tell either end that the other one left.
            await passes.wait()
        self.close()

    def silence(self, ways: Iterable[Way] = BOTH) -> None:
        """Nothing passes any more, and nobody is told."""
        for way in ways:
            self._passes[way].clear()

    def flow(self) -> None:
        """What waited passes, and all that follows."""
        for passes in self._passes.values():
            passes.set()

    def reset(self) -> None:
        """Both ends are told by a reset."""
        for end in self._ends:
            raw = end.get_extra_info("socket")
            with contextlib.suppress(OSError, ValueError):  # it may be closed already
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()
        self.flow()

    def close(self) -> None:
        for end in self._ends:
            end.close()


class Proxy:
    """Carries every connection to a server."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.lines: list[Line] = []
        self._stalled: set[Way] = set()
        self.port = 0
        self.opened = 0  # lines since the start
        self.stalls_line = 0  # the number of a line that is stalled from its beginning
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self.server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    def silence(self, port: int | None = None) -> None:
        """What is connected now, or from one port, is cut off without a word; new lines work."""
        for line in self.lines:
            if port is None or line.port == port:
                line.silence()

    def stall(self, ways: Iterable[Way] = BOTH) -> None:
        """Bytes wait, on new lines too, until they flow again; nothing is closed."""
        self._stalled.update(ways)
        for line in self.lines:
            line.silence(self._stalled)

    def flow(self) -> None:
        self._stalled.clear()
        for line in self.lines:
            line.flow()

    def reset(self) -> None:
        """What is connected now is reset; new connections work."""
        for line in self.lines:
            line.reset()

    async def close(self) -> None:
        """Reset what is connected now, and refuse new connections."""
        assert self.server is not None
        self.server.close()
        self.reset()
        async with asyncio.timeout(CLOSE_S):
            await self.is_empty.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            source, target = await asyncio.open_connection(HOST, self._target)
        except OSError:
            writer.close()
            return
        line = Line(writer, target)
        self.opened += 1
        line.silence(BOTH if self.opened == self.stalls_line else self._stalled)
        self.lines.append(line)
        self.is_empty.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(line.carry(reader, target, Way.OUT))
                group.create_task(line.carry(source, writer, Way.BACK))
        finally:
            self.lines.remove(line)
            if not self.lines:
                self.is_empty.set()


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a server's port."""
    found = Proxy(port)
    found.server = await asyncio.start_server(found.serve, HOST, 0)
    found.port = found.server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        await found.close()
