"""Run a real broker in a thread of the test's process.

`broker()` starts a node on a free port and yields a `RunningBroker` that says how to reach it. The
node keeps everything in memory unless the test gives it a disk. The node stops at the end of the
`with` block.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.runtime.loop import loop_factory
from leveret.runtime.node import Node
from leveret.storage.disk import Disk

_START_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that accepts connections, and the ways to reach it."""

    url: str  # amqp://USER:PASSWORD@HOST:PORT/
    host: str
    port: int  # of AMQP
    http_url: str  # http://HOST:PORT, without a login; empty unless the broker serves HTTP
    http_port: int  # 0 unless the broker serves HTTP
    clock: Clock  # the clock that the test gave, or the real one
    node: Node  # the node itself, for tests that look inside


@contextlib.contextmanager
def broker(
    *,
    clock: Clock | None = None,
    http: bool = False,
    disk: Disk | None = None,
    **settings: Any,
) -> Iterator[RunningBroker]:
    """Run a broker of its own on a free port until the end of the block.

    With a `disk`, durable objects and messages are kept there, and the next broker on the same disk
    recovers them. `settings` are fields of `leveret.config.settings.Settings`. A broker with a
    manual clock offers no heartbeats: when a test moves the clock by hours, the client would seem
    to have been silent for hours.
    """
    clock = clock or Clock()
    base = Settings(amqp_port=0, http_port=0, node="test")
    chosen = replace(base if clock.moves else replace(base, heartbeat_s=0), **settings)
    thread = _BrokerThread(chosen, clock, http, disk)
    thread.start()
    try:
        yield thread.wait_ready()
    finally:
        thread.stop()


class _BrokerThread(threading.Thread):
    """The thread with the event loop of one broker."""

    def __init__(self, settings: Settings, clock: Clock, http: bool, disk: Disk | None) -> None:
        super().__init__(name="leveret-broker", daemon=True)
        self._settings = settings
        self._clock = clock
        self._http = http
        self._disk = disk
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop = loop_factory(settings.event_loop)()
        self._stopping: asyncio.Event = asyncio.Event()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        node = Node(self._settings, self._clock, serves_http=self._http, disk=self._disk)
        await node.start()
        self.node = node
        self._ready.set()
        await self._stopping.wait()
        await node.stop()

    def wait_ready(self) -> RunningBroker:
        """Wait until the broker accepts connections. Raise its error if it could not start."""
        if not self._ready.wait(_START_WITHIN_S):
            raise TimeoutError("the broker did not start")
        if self._failure is not None:
            raise self._failure
        host, port = self.node.amqp_address
        http_host, http_port = self.node.http_address
        settings = self._settings
        return RunningBroker(
            url=f"amqp://{settings.default_user}:{settings.default_pass}@{host}:{port}/",
            host=host,
            port=port,
            http_url=f"http://{http_host}:{http_port}" if http_port else "",
            http_port=http_port,
            clock=self._clock,
            node=self.node,
        )

    def stop(self) -> None:
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self.join(_STOP_WITHIN_S)
