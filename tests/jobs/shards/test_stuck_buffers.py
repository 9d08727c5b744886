"""A buffer that cannot be flushed holds back no other of its shard."""

import asyncio

import pytest
from msgspec import structs

from leveret.errors import JobsUnavailableError
from leveret.job_service.shards.redis.keys import BUFFERS, buffer_key
from leveret.job_service.shards.redis.prefetch_keys import member_of
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.routing import slot_of
from leveret.job_service.shards.shard import TopicStoppedError
from tests.jobs.shards.deployment import QUIET, Deployment, drain, hold_flushers, new

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

FEW = structs.replace(QUIET, flush_max=4)
# Two topics of the first shard. The buffer of the stuck one is read first.
STUCK, OTHER = [name for name in map(str, range(100)) if slot_of(("n", name)) % 2 == 0][:2]


def test_a_buffer_with_bytes_that_are_not_a_job_holds_back_no_other(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=FEW) as store:
            hold_flushers(store)
            redis = store._redis._redis
            await redis.rpush(buffer_key("n", STUCK), *[b"not a job"] * FEW.flush_max)
            await redis.sadd(BUFFERS, member_of(("n", STUCK)))
            await store.enqueue([new(OTHER, b"x")])
            await asyncio.gather(*(store._updater.flush(("n", each)) for each in (STUCK, OTHER)))
            assert await drain(store, OTHER) == [b"x"]

    asyncio.run(main())


@pytest.mark.parametrize("is_map_read", [False, True])
def test_a_topic_that_is_being_moved_holds_back_no_other(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, is_map_read: bool
) -> None:
    async def refuse() -> None:
        raise JobsUnavailableError("the first shard does not answer")

    async def main() -> None:
        async with deployment.node(settings=FEW) as store, open_mover(deployment.dsns) as moving:
            hold_flushers(store)
            await moving.freeze(("n", STUCK))
            if not is_map_read:
                monkeypatch.setattr(store._routes, "refresh", refuse)
            await store.enqueue([new(STUCK) for _ in range(FEW.flush_max)])
            await store.enqueue([new(OTHER, b"x")])
            flushes = [store._updater.flush(("n", each)) for each in (STUCK, OTHER)]
            stopped, flushed = await asyncio.gather(*flushes, return_exceptions=True)
            assert isinstance(stopped, TopicStoppedError)
            assert flushed is None
            assert await drain(store, OTHER) == [b"x"]
            await moving.thaw(("n", STUCK))
            monkeypatch.undo()
            assert len(await drain(store, STUCK)) == FEW.flush_max

    asyncio.run(main())
