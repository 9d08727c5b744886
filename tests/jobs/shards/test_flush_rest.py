"""Buffered jobs wait longer for their flush while no node needs them, and only then.

No test can pass by a regular flush: the next one is an hour away.
"""

import asyncio
from contextlib import closing
from typing import Any

import pytest
import redis
from msgspec import structs

from leveret.job_model import Enqueued, LeasedJob, NewJob
from leveret.job_service.shards.redis import keys
from leveret.job_service.shards.store import ShardsStore
from tests.jobs.shards.deployment import (
    LEASE_MS,
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    begin_to_wait,
    eventually,
    handles,
    new,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

RESTING = structs.replace(QUIET, flush_delay_ms=1, flush_rest_ms=3_600_000)


async def begin(store: ShardsStore, job: NewJob) -> None:
    """Enqueue a job without a task."""
    outcome: asyncio.Future[Enqueued | Exception] = asyncio.get_running_loop().create_future()
    assert store.begin_enqueue([job], outcome.set_result)
    assert isinstance(await outcome, Enqueued)


async def rest(store: ShardsStore) -> None:
    """Let the flusher rest: it has flushed a job just now."""
    await begin(store, new(payload=b"before"))
    await store._updater.flush(TOPIC)
    (job,) = await store.dequeue(*TOPIC, 1, LEASE_MS, 0)
    await store.ack(*TOPIC, handles([job]))


async def payload_of(waiting: "asyncio.Task[list[LeasedJob]]") -> bytes:
    (job,) = await asyncio.wait_for(waiting, WITHIN_S)
    return job.payload


def signals_of(store: ShardsStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of the flushes that are planned: True if no other node needs the job soon."""
    found: list[bool] = []
    flusher = store._updater.flusher_of(TOPIC)
    plan = flusher.signal

    def note(topic: tuple[str, str], priority: int = 0, *, is_quiet: bool = False) -> None:
        found.append(is_quiet)
        plan(topic, priority, is_quiet=is_quiet)

    monkeypatch.setattr(flusher, "signal", note)
    return found


@pytest.mark.parametrize("count", [1, 2])
def test_a_dequeue_that_waits_at_another_node_gets_a_job_at_once(
    deployment: Deployment, count: int
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, there):
            await rest(here)
            for _ in range(2):
                waiting = [await begin_to_wait(there) for _ in range(count)]
                for number in range(count):
                    await begin(here, new(payload=b"%d" % number))
                found = {await payload_of(each) for each in waiting}
                assert found == {b"%d" % number for number in range(count)}

    asyncio.run(main())


def test_a_job_that_no_node_needs_waits_and_calls_find_it(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, there):
            await rest(here)
            planned = signals_of(here, monkeypatch)
            assert await there.dequeue(*TOPIC, 1, LEASE_MS, 0) == []
            await begin(here, new(payload=b"1"))
            await begin(here, new(payload=b"2"))
            assert planned == [False, True], "a dequeue has found none, and may look again"
            for store in (here, there):
                (stats,) = await store.stats("n")
                assert stats.ready == 2
            await begin(here, new(payload=b"3"))
            jobs, _ = await there.list_jobs(*TOPIC, "ready", 10, "")
            assert [job.payload for job in jobs] == [b"1", b"2", b"3"]
            found = await there.dequeue(*TOPIC, 4, LEASE_MS, 0)
            assert len(found) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    "job", [new(priority=-1), new(deliver_after_ms=1 << 42), new(payload=b"x" * 100_000)]
)
def test_jobs_that_are_urgent_or_large_or_due_later_do_not_wait(
    deployment: Deployment, job: NewJob
) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await rest(store)
            await begin(store, new(payload=b"quiet"))
            if job.payload == b"x":
                await begin(store, job)
            else:
                await store.enqueue([job])

            async def are_flushed() -> bool:
                return len(await deployment.rows("SELECT FROM items")) == 2

            await eventually(are_flushed)

    asyncio.run(main())


def test_jobs_do_not_wait_beside_prefetched_jobs(
    deployment: Deployment, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await rest(store)
            planned = signals_of(store, monkeypatch)
            await begin(store, new())
            database: Any = deployment.redis_url.rpartition("/")[2]
            with closing(redis.Redis(port=redis_server.port, db=int(database))) as client:
                client.rpush(keys.queue_key(*TOPIC), b"a job")
                await begin(store, new())
                client.delete(keys.queue_key(*TOPIC))
            await begin(store, new())
            assert planned == [True, False, True]

    asyncio.run(main())
