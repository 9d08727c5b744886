"""Concurrent calls that enqueue one job each share a record of the log and a push to Redis."""

import asyncio
from contextlib import closing
from typing import Any

import msgspec
import pytest
import redis

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.batching import CALLERS_MAX
from tests.jobs.shards.deployment import QUIET, Deployment, drain, hold_flushers, new
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
