"""A deployment of the shards store for tests: servers, nodes, and helpers to use them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
from msgspec import structs

from leveret.clock import Clock
from leveret.errors import JobsError
from leveret.job_model import Handle, LeasedJob, NewJob
from leveret.job_service.shards import ShardsSettings, ShardsStore, open_store
from leveret.job_service.shards.routing import slot_of

WITHIN_S = 60.0
# Short times, so that what waits for time does not make tests wait; no deadline a test depends on.
QUICK = ShardsSettings(
    probe_s=0.1,
    tick_s=0.1,
    idle_s=5.0,
    sweep_after_s=0.4,
    flush_interval_ms=100,
    deadline_s=WITHIN_S,
)

# Nothing happens in the background unless a call or a notification causes it.
QUIET = structs.replace(
    QUICK,
    tick_s=600.0,
    probe_s=600.0,
    sweep_after_s=600.0,
    flush_interval_ms=600_000,
    unwritten_s=600.0,
    announced_s=600.0,
    silent_s=3_600.0,
    node_lease_ms=3_600_000,
)
TOPIC = "n", "t"  # of `new`
LEASE_MS = 10_000


@dataclass(frozen=True)
class Deployment:
    """Where nodes run."""

    redis_url: str
    dsns: list[str]
    folder: Path

    def store(
        self, name: str = "a", clock: Clock | None = None, settings: ShardsSettings = QUICK
    ) -> ShardsStore:
        clock = clock or Clock()
        return open_store(
            redis_url=self.redis_url,
            dsns=self.dsns,
            data=self.folder / name,
            clock=clock,
            random=Random(1),
            settings=structs.replace(settings, is_time_given=not clock.moves),
        )

    def at(self, **changes: Any) -> "Deployment":
        return replace(self, **changes)

    async def started(
        self,
        name: str = "a",
        clock: Clock | None = None,
        settings: ShardsSettings = QUICK,
        missing: int = 0,
    ) -> ShardsStore:
        """A node that runs; all servers are there but so many shards, and it has found them.

        A server that is slow to answer counts as down, which keeps no node from starting.
        """
        store = self.store(name, clock, settings)
        await store.start()
        await eventually(lambda: is_found(store, missing))
        return store

    @asynccontextmanager
    async def node(
        self,
        name: str = "a",
        clock: Clock | None = None,
        settings: ShardsSettings = QUICK,
        missing: int = 0,
    ) -> AsyncIterator[ShardsStore]:
        """The same, stopped at the end."""
        store = await self.started(name, clock, settings, missing)
        try:
            yield store
        finally:
            await store.stop(WITHIN_S)

    @asynccontextmanager
    async def two_nodes(
        self, clock: Clock | None = None, settings: ShardsSettings = QUICK
    ) -> AsyncIterator[tuple[ShardsStore, ShardsStore]]:
        here = self.node("a", clock, settings)
        async with here as first, self.node("b", clock, settings) as second:
            yield first, second

    async def last_statement(self) -> list[Any]:
        """When the nodes began or ended their last statement on each shard."""
        return await self.rows(
            "SELECT max(state_change)::text AS at FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'leveret jobs'"
        )

    async def rows(self, sql: str, *arguments: object, shard: int | None = None) -> list[Any]:
        """What databases answer, one after the other."""
        found: list[Any] = []
        for dsn in self.dsns if shard is None else [self.dsns[shard]]:
            connection = await asyncpg.connect(dsn, timeout=WITHIN_S)
            found += await connection.fetch(sql, *arguments)
            await connection.close()
        return found

    async def is_empty(self, table: str) -> bool:
        return not await self.rows(f"SELECT FROM {table}")


def is_whole(store: ShardsStore, missing: int = 0) -> bool:
    """Whether a node has all that it needs but so many shards."""
    up = sum(shard.is_up for shard in store._shards)
    has_servers = store._redis.is_up and store._routes.is_loaded
    return (
        has_servers
        and up == len(store._shards) - missing
        and store._id_generator.node_number is not None
    )


async def is_found(store: ShardsStore, missing: int) -> bool:
    """Whether a node is whole. One that looks for servers seldom looks for the missing ones now."""
    if not is_whole(store, missing) and store._settings.probe_s > WITHIN_S:
        servers: list[Any] = [store._redis, *store._shards]
        for server in servers:
            if not server.is_up:
                await server.probe()
        await store._try_to("read the shard map", store._routes.refresh)
        await store._try_to("lease a node number", store._id_generator.renew)
    return is_whole(store, missing)


async def abandon(store: ShardsStore) -> None:
    """End a node as kill -9 does: nothing is flushed, nothing is told to anybody."""
    await store._close()


def topic_on(shard: int, shards: int = 2, namespace: str = "n") -> str:
    """A topic that lives on a shard."""
    return next(
        name
        for name in (f"t{number}" for number in range(1000))
        if slot_of((namespace, name)) % shards == shard
    )


def new(topic: str = "t", payload: bytes = b"x", **more: Any) -> NewJob:
    return NewJob(namespace="n", topic=topic, payload=payload, **more)


def handles(jobs: list[LeasedJob]) -> list[Handle]:
    return [Handle(job.id, job.token) for job in jobs]


async def begin_to_wait(store: ShardsStore) -> "asyncio.Task[list[LeasedJob]]":
    """Begin a dequeue that waits for a job; return when it has found none.

    It waits for longer than a test does, because it looks for jobs once more at its end.
    """
    dequeue = store.dequeue(*TOPIC, 1, LEASE_MS, 600_000)
    waiting = asyncio.get_running_loop().create_task(dequeue)
    await eventually(lambda: store._signals.is_awaited(TOPIC))
    return waiting


async def drain(store: ShardsStore, topic: str, limit: int = 100) -> list[bytes]:
    """Payloads of everything that is ready, each acknowledged."""
    found: list[bytes] = []
    while jobs := await store.dequeue("n", topic, limit, None, 0):
        await store.ack("n", topic, handles(jobs))
        found += [job.payload for job in jobs]
    return found


async def refuses(work: Any, kind: type[JobsError] = JobsError) -> str:
    """The text of the error that a call raises."""
    try:
        await work
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


async def eventually(
    is_so: Callable[[], bool | Awaitable[bool]], within_s: float = WITHIN_S
) -> None:
    """Wait until something is so that nobody tells."""
    async with asyncio.timeout(within_s):
        while True:
            answer = is_so()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


def hold_flushers(store: ShardsStore) -> None:
    """What is buffered stays there until somebody asks for it."""
    for flusher in store._flushers:
        flusher.signal = _nothing  # type: ignore[method-assign]


def _nothing(topic: tuple[str, str], priority: int = 0, *, is_quiet: bool = False) -> None:
    pass
