"""Helpers of tests of acks of prefetched jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leveret.job_model import Handle, LeasedJob, Outcome
from leveret.job_service.shards import ShardsStore
from leveret.job_service.shards.background.own_acks import OwnAcks
from leveret.job_service.shards.redis.redis_client import RedisClient
from leveret.job_service.shards.shard import Shard
from leveret.job_service.shards.sql.loader import (
    PREFETCH_MARGIN_MS,
    PREFETCH_OFFERED_MS,
)
from leveret.job_service.store import AckedAndTaken
from tests.jobs.shards.deployment import (
    LEASE_MS,
    Deployment,
    handles,
    new,
)
from tests.proxy import Proxy, proxy

OVER_MS = LEASE_MS + PREFETCH_OFFERED_MS + PREFETCH_MARGIN_MS  # the lease of every row has ended


async def taken(store: ShardsStore, count: int, topic: str = "t", more: int = 0) -> list[LeasedJob]:
    """Hand out so many prefetched jobs; `more` of them stay on the list. The node is announced."""
    await announce(store, topic)
    return await handed_out(store, count, topic, more)


async def handed_out(
    store: ShardsStore, count: int, topic: str = "t", more: int = 0
) -> list[LeasedJob]:
    name = "n", topic
    await store.enqueue([new(topic, b"%d" % number) for number in range(count + more)])
    await store._updater.flush(name)
    await store._prefetcher.prefetch(name, LEASE_MS)
    jobs = await store.dequeue(*name, count, LEASE_MS, 0)
    assert len(jobs) == count
    return jobs


async def announce(store: ShardsStore, topic: str = "t") -> None:
    """Let a node announce itself, as it does soon after the first ack of a topic."""
    own = store._notes._own["n", topic] = OwnAcks(store._settings.announced_s)
    own.ask(asyncio.get_running_loop().time())
    await store._notes.write(("n", topic))
    assert own.may_note(asyncio.get_running_loop().time())


@asynccontextmanager
async def redis_behind_a_line(deployment: Deployment) -> AsyncIterator[tuple[Proxy, Deployment]]:
    """Return a line to Redis that can be stalled, and a deployment whose nodes use it."""
    address, _, database = deployment.redis_url.rpartition("/")
    async with proxy(int(address.rpartition(":")[2])) as line:
        yield line, deployment.at(redis_url=f"redis://127.0.0.1:{line.port}/{database}")


async def look(store: ShardsStore) -> None:
    """Let a node look for leases that ran out."""
    for shard in store._shards:
        await store._ticker._look(shard)


async def quick_ack(store: ShardsStore, jobs: list[LeasedJob], topic: str = "t") -> None:
    """Ack jobs; only Redis learns of it."""
    assert await store.ack("n", topic, handles(jobs)) == [Outcome.DONE] * len(jobs)
    assert ("n", topic) in store._notes.topics


async def acked_and_taken(
    store: ShardsStore, acks: list[Handle], limit: int = 1
) -> AckedAndTaken | None:
    """Ack jobs of the topic "t" and take others in one step; None if that is not possible."""
    told: asyncio.Future[AckedAndTaken | Exception | None]
    told = asyncio.get_running_loop().create_future()
    if not store.begin_take("n", "t", acks, limit, LEASE_MS, told.set_result, may_find_none=False):
        return None
    found = await told
    assert not isinstance(found, Exception)
    return found


async def job_count(deployment: Deployment) -> int:
    return sum([row["n"] for row in await deployment.rows("SELECT count(*) AS n FROM items")])


async def is_written(deployment: Deployment) -> bool:
    return await deployment.is_empty("items")


async def is_up_again(server: Shard | RedisClient) -> bool:
    await server.probe()
    return server.is_up
