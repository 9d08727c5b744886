"""Runs a broker in a thread of the test's process."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.runtime.loop import loop_factory
from leveret.runtime.node import Node
from leveret.storage.disk import Disk

_START_WITHIN_S: Final = 10.0
_STOP_WITHIN_S: Final = 10.0


class BrokerUrl(str):
    """The address of a broker, as clients take it; host and port for those that take them apart."""

    host: str
    port: int
    http_port: int
    node: Node


@contextlib.contextmanager
def broker(
    *,
    clock: Clock | None = None,
    http: bool = False,
    disk: Disk | None = None,
    **settings: Any,
) -> Iterator[BrokerUrl]:
    """A broker of its own: in memory, on a free port, gone at the end of the block.

    With a `disk` everything durable is kept there, and is there again for the next broker.
    `settings` are fields of `leveret.config.settings.Settings`. A broker whose clock is moved by
    hand offers no heartbeats: its clients would be silent for hours of its time.
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
    """The loop of one broker."""

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

    def wait_ready(self) -> BrokerUrl:
        if not self._ready.wait(_START_WITHIN_S):
            raise TimeoutError("the broker did not start")
        if self._failure is not None:
            raise self._failure
        host, port = self.node.amqp_address
        settings = self._settings
        url = BrokerUrl(f"amqp://{settings.default_user}:{settings.default_pass}@{host}:{port}/")
        url.host, url.port, url.node = host, port, self.node
        url.http_port = self.node.http_address[1]
        return url

    def stop(self) -> None:
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self.join(_STOP_WITHIN_S)
