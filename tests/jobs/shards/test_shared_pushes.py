"""Concurrent calls that enqueue one job each share a record of the log and a push to Redis."""

import asyncio
from contextlib import closing
from typing import Any

import msgspec
import pytest
import redis

from leveret.errors import JobsUnavailableError
from leveret.job_model import Enqueued
from leveret.job_service.shards.batching import CALLERS_MAX
from leveret.job_service.shards.store import ShardsStore
from tests.jobs.shards.deployment import (
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    drain,
    hold_flushers,
    new,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


def test_concurrent_enqueues_of_single_jobs_share_records_and_pushes(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            hold_flushers(store)
            await store.enqueue([new(payload=b"first")])
            before = scripts_run(redis_server)
            calls = [store.enqueue([new(payload=b"%d" % number)]) for number in range(64)]
            answers = await asyncio.gather(*calls)
            # The first call does not wait for the others.
            assert scripts_run(redis_server) - before == 1 + -(-63 // CALLERS_MAX)
            assert len({id for answer in answers for id in answer.ids}) == 64
            assert await drain(store, "t") == [b"first", *(b"%d" % n for n in range(64))]

    asyncio.run(main())


def scripts_run(server: RedisServer) -> int:
    with closing(redis.Redis(port=server.port)) as client:
        found: Any = client.info("commandstats")
        return int(found["cmdstat_evalsha"]["calls"])


def test_single_jobs_that_share_a_push_are_refused_together_by_a_full_buffer(
    deployment: Deployment,
) -> None:
    small = msgspec.structs.replace(QUIET, buffer_max=3)

    async def main() -> None:
        async with deployment.node(settings=small) as store:
            hold_flushers(store)
            calls = [store.enqueue([new(payload=b"%d" % number)]) for number in range(5)]
            first, *shared = await asyncio.gather(*calls, return_exceptions=True)
            assert not isinstance(first, BaseException)  # it did not wait for the others
            assert all(isinstance(each, JobsUnavailableError) for each in shared)
            assert all("is full" in str(each) for each in shared)
            await store.enqueue([new(payload=b"kept")])
            assert await drain(store, "t") == [b"0", b"kept"]

    asyncio.run(main())


def begin(store: ShardsStore, payload: bytes) -> "asyncio.Future[Enqueued | Exception]":
    """Begin to enqueue a job without a task; return the future of its outcome."""
    outcome: asyncio.Future[Enqueued | Exception] = asyncio.get_running_loop().create_future()
    assert store.begin_enqueue([new(payload=payload)], outcome.set_result)
    return outcome


def test_jobs_that_need_no_task_share_the_push_after_that_of_the_first(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            hold_flushers(store)
            await begin(store, b"first")  # Redis has the scripts now
            await store.enqueue([new(payload=b"second")])
            before = scripts_run(redis_server)
            found = await asyncio.gather(*[begin(store, b"%d" % number) for number in range(5)])
            assert all(isinstance(each, Enqueued) for each in found)
            assert scripts_run(redis_server) - before == 2
            assert not store.begin_enqueue([new(idempotency_key="k")], print), "it has a key"
            assert not store._wal.unanswered
            assert await drain(store, "t") == [b"first", b"second", *(b"%d" % n for n in range(5))]

    asyncio.run(main())


def test_jobs_that_need_no_task_and_share_a_push_are_refused_together(
    deployment: Deployment,
) -> None:
    small = msgspec.structs.replace(QUIET, buffer_max=3)

    async def main() -> None:
        async with deployment.node(settings=small) as store:
            hold_flushers(store)
            outcomes = [begin(store, b"%d" % number) for number in range(5)]
            first, *shared = await asyncio.gather(*outcomes)
            assert isinstance(first, Enqueued)
            assert all("is full" in str(each) for each in shared)
            assert not store._wal.unanswered
            assert await drain(store, "t") == [b"0"]

    asyncio.run(main())


def test_a_job_that_needs_no_task_is_pushed_again_if_redis_lost_the_script(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            with closing(redis.Redis(port=redis_server.port)) as client:
                client.script_flush()
            found = await begin(store, b"kept")
            assert isinstance(found, Enqueued)
            assert await drain(store, "t") == [b"kept"]

    asyncio.run(main())


def test_a_job_that_needs_no_task_is_taken_back_if_its_push_fails(deployment: Deployment) -> None:
    small = msgspec.structs.replace(QUIET, buffer_max=2)

    async def main() -> None:
        async with deployment.node(settings=small) as store:
            hold_flushers(store)
            assert isinstance(await begin(store, b"kept"), Enqueued)
            lost = begin(store, b"lost")  # Redis may have it, so the shard must refuse it
            store._redis._pipelined._fail(ConnectionResetError("cut off"))
            assert "cut off" in str(await lost)
            await store._redis.probe()
            assert not store._wal.unanswered
            assert await drain(store, "t") == [b"kept"]

    asyncio.run(main())


def test_a_job_that_needs_no_task_is_refused_by_a_full_buffer(deployment: Deployment) -> None:
    small = msgspec.structs.replace(QUIET, buffer_max=1)

    async def main() -> None:
        async with deployment.node(settings=small) as store:
            hold_flushers(store)
            assert isinstance(await begin(store, b"kept"), Enqueued)
            assert "is full" in str(await begin(store, b"refused"))
            assert not store._wal.unanswered
            assert await drain(store, "t") == [b"kept"]

    asyncio.run(main())


def test_jobs_are_answered_although_their_topic_moves_to_a_shard_of_other_nodes(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            hold_flushers(store)
            first = begin(store, b"first")
            second = asyncio.get_running_loop().create_task(store.enqueue([new(payload=b"second")]))
            await asyncio.sleep(0)  # it waits for the push now
            moved = store._routes._overrides
            moved[TOPIC] = len(store._shards)  # as another process has written it
            async with asyncio.timeout(WITHIN_S):
                assert isinstance(await first, Enqueued)
                assert (await second).known == 0
            moved.clear()
            assert await drain(store, "t") == [b"first", b"second"]

    asyncio.run(main())
