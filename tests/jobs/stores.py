"""The stores that the contract suite runs against: a service each, with time that can pass.

A further store is a further entry in `FACTORIES`: a function that is given an empty folder and
makes a `Service`, as a context manager.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from unittest import mock

from leveret.job_service.shards import ShardsSettings
from leveret.storage.disk import Disk
from leveret.testing import ManualClock, RunningBroker, broker
from tests.jobs.shards.databases import migrated
from tools.services import shared_postgres, shared_redis

HOUR_S = 3600
WITHIN_S = 60.0
T = TypeVar("T")
MINUTE_MS = 60_000


class Service(Protocol):
    """A running service."""

    keeps_leases: bool  # over a restart of the node

    @property
    def port(self) -> int:
        """Of its HTTP front."""

    def now_ms(self) -> int:
        """The service's time."""

    def token(self, *namespaces: str, lasts_s: int = HOUR_S) -> str:
        """A token for namespaces."""

    def pass_time(self, seconds: float) -> None:
        """Return when so much time has passed, and what is due by then has happened."""

    def leap(self, seconds: float) -> None:
        """The same, for a long time without schedules."""

    def restart(self) -> None:
        """Stop it, and start it again on the same data; the port may be another."""


Factory = Callable[[Path], AbstractContextManager[Service]]


class EmbeddedService:
    """A broker in this process, on a clock that is moved by hand."""

    keeps_leases = False

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        self._settings = settings
        self.clock = ManualClock()
        self.server: RunningBroker
        self._running = contextlib.ExitStack()

    @property
    def port(self) -> int:
        return self.server.http_port

    def start(self) -> None:
        running = broker(http=True, clock=self.clock, disk=Disk(self._folder), **self._settings)
        self.server = self._running.enter_context(running)

    def stop(self) -> None:
        self._running.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def token(self, *namespaces: str, lasts_s: int = HOUR_S) -> str:
        return self.server.node.jobs.sign(list(namespaces), "test", lasts_s)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    def leap(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the node."""
        loop = self.server.node.amqp._loop
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(WITHIN_S)


@contextlib.contextmanager
def embedded(folder: Path, **settings: Any) -> Iterator[EmbeddedService]:
    """The store on the broker's own engine and log."""
    service = EmbeddedService(folder, **settings)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def patient_shards() -> AbstractContextManager[Any]:
    """Let nodes that start now wait long for Redis and shards, as a busy machine may need."""
    settings = functools.partial(ShardsSettings, deadline_s=WITHIN_S, silent_s=2 * WITHIN_S)
    return mock.patch("leveret.job_service.shards.ShardsSettings", settings)


class ShardsService(EmbeddedService):
    """A broker in this process whose jobs are in Redis and two PostgreSQL databases."""

    keeps_leases = True

    def start(self) -> None:
        with patient_shards():
            super().start()

    def pass_time(self, seconds: float) -> None:
        """Through every full minute on the way, as schedules have it."""
        end_ms = self.clock.now_ms() + round(seconds * 1000)
        while (now_ms := self.clock.now_ms()) < end_ms:
            minute_ms = (now_ms // MINUTE_MS + 1) * MINUTE_MS
            self.clock.advance((min(minute_ms, end_ms) - now_ms) / 1000)
            self._wake()

    def leap(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self._wake()

    def _wake(self) -> None:
        loop, _ = self.clock._listeners[-1]
        if not loop.is_closed():
            asyncio.run_coroutine_threadsafe(_wake(self.server.node), loop).result(WITHIN_S)


async def _wake(node: Any) -> None:
    """What the store does by itself within half a second."""
    store = await node.jobs.store()
    for shard in store._shards:
        await store._ticker.handle_due(shard)


@contextlib.contextmanager
def shards(folder: Path, **settings: Any) -> Iterator[ShardsService]:
    """The store on Redis and PostgreSQL."""
    with migrated(shared_postgres(), 2) as dsns:
        redis_url = shared_redis().fresh_url()
        settings |= {"jobs_redis": redis_url, "jobs_postgres": " ".join(dsns)}
        service = ShardsService(folder, **settings)
        service.start()
        try:
            yield service
        finally:
            service.stop()


FACTORIES: dict[str, Factory] = {"embedded": embedded, "shards": shards}
