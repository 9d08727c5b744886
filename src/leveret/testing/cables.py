"""TCP connections between the nodes of a cluster that a test can cut and heal.

One `Cable` is a proxy for the connections that one node opens to another. A cut cable passes
nothing and tells nobody, like a network that drops packets: connections stay open, new ones are
accepted and stay silent. Bytes that were sent into a cut cable arrive when it is healed. A pair of
nodes has two cables, because either node may open connections.

`Cables` runs all proxies on an event loop in a thread of its own.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

from leveret.testing.ports import HOST

READ_BYTES: Final = 262_144
_WITHIN_S: Final = 60.0


class Cable:
    """The connections that one node opens to another."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._out = asyncio.Event()  # set: bytes pass from the node that dials
        self._back = asyncio.Event()  # set: bytes pass to the node that dials
        self._carrying: set[asyncio.Task[None]] = set()
        self.flow()

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, port)

    def cut(self, *, out: bool, back: bool) -> None:
        """Let nothing pass in these directions."""
        if out:
            self._out.clear()
        if back:
            self._back.clear()

    def flow(self) -> None:
        self._out.set()
        self._back.set()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carrying:
            task.cancel()
        if self._carrying:
            await asyncio.wait(self._carrying)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: the one of a coroutine given to `start_server` logs its cancellation.
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target: asyncio.StreamWriter | None = None
        try:
            await self._out.wait()
            source, target = await asyncio.open_connection(HOST, self._target_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, target, self._out))
                group.create_task(_copy(source, writer, self._back))
        except OSError:
            pass  # nobody listens
        finally:
            writer.transport.abort()
            if target is not None:
                target.transport.abort()


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, passes: asyncio.Event
) -> None:
    """Copy bytes while they may pass. The end of one direction ends that direction only."""
    with contextlib.suppress(OSError):
        while data := await source.read(READ_BYTES):
            await passes.wait()
            target.write(data)
            await target.drain()
    # A cut cable does not tell that the other end is gone.
    await passes.wait()
    with contextlib.suppress(OSError, RuntimeError):
        target.write_eof()


class Cables:
    """All cables of a cluster, by the names of the node that dials and the node that is dialed."""

    def __init__(self) -> None:
        self._cables: dict[tuple[str, str], Cable] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="leveret-cables", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def add(self, source: str, target: str, *, port: int, target_port: int) -> None:
        """Lay a cable: connections of `source` to `port` arrive at `target_port` of `target`."""

        async def lay() -> None:
            cable = self._cables[source, target] = Cable(target_port)
            await cable.listen(port)

        asyncio.run_coroutine_threadsafe(lay(), self._loop).result(_WITHIN_S)

    def cut(self, a: str, b: str, *, one_way: bool) -> None:
        """Let nothing pass from `a` to `b`, and nothing back unless the cut is one way."""
        self._do(lambda: self._cut(a, b, one_way=one_way))

    def _cut(self, a: str, b: str, *, one_way: bool) -> None:
        self._cables[a, b].cut(out=True, back=not one_way)
        self._cables[b, a].cut(out=not one_way, back=True)

    def heal(self) -> None:
        """Let everything pass."""
        self._do(self._heal)

    def _heal(self) -> None:
        for cable in self._cables.values():
            cable.flow()

    def _do(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WITHIN_S)

    def close(self) -> None:
        async def close_all() -> None:
            for cable in self._cables.values():
                await cable.close()

        try:
            asyncio.run_coroutine_threadsafe(close_all(), self._loop).result(_WITHIN_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_WITHIN_S)
            self._loop.close()
