"""Moving a topic to another shard while nodes run."""

import asyncio

import pytest

from leveret.errors import JobsUnavailableError
from leveret.job_model import Handle, Outcome, TopicSettings
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.routing import fnv32a
from tests.jobs.shards.deployment import Deployment, abandon, drain, new, topic_on

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_the_hash_is_fnv_1a(data: bytes, expected: int) -> None:
    assert fnv32a(data) == expected


def test_topics_are_spread_over_the_shards(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(topic_on(0)), new(topic_on(1))])
        for shard in (0, 1):
            (row,) = await deployment.rows("SELECT topic FROM items", shard=shard)
            assert row["topic"] == topic_on(shard)

    asyncio.run(main())


def test_a_topic_moves_while_jobs_go_in_and_out(deployment: Deployment) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            await first.set_settings(*topic, TopicSettings(retries_max=3, backoff_ms=0))
            sent: list[bytes] = []
            got: list[bytes] = []
            is_over = False

            async def send() -> None:
                while not is_over:
                    payload = b"%d" % len(sent)
                    await first.enqueue([new(topic[1], payload)])
                    sent.append(payload)
                    await asyncio.sleep(0.002)

            async def work() -> None:
                while not is_over or len(got) < len(sent):
                    try:
                        jobs = await second.dequeue(*topic, 5, None, 50)
                        handles = [Handle(job.id, job.token) for job in jobs]
                        outcomes = await second.ack(*topic, handles)
                    except JobsUnavailableError:
                        continue
                    assert set(outcomes) <= {Outcome.DONE}
                    got.extend(job.payload for job in jobs)

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                group.create_task(work())
                for shard in (1, 0, 1):
                    await asyncio.sleep(0.1)
                    async with open_mover(deployment.dsns) as moving:
                        await moving.move(topic, shard)
                await asyncio.sleep(0.1)
                is_over = True
            assert sorted(got) == sorted(sent)
            assert (await first.settings(*topic)).retries_max == 3
            assert not await deployment.rows("SELECT FROM items", shard=0)

    asyncio.run(main())


def test_a_thaw_without_a_switch_calls_it_off(deployment: Deployment) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(topic[1], b"1")])
            async with open_mover(deployment.dsns) as moving:
                await moving.freeze(topic)
                await moving.carry(topic, 1)
                await moving.thaw(topic)
            assert await drain(store, topic[1]) == [b"1"]

    asyncio.run(main())


def test_a_replay_after_a_move_brings_nothing_back(deployment: Deployment) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        store = await deployment.started("a")
        await store.enqueue([new(topic[1], b"1")])
        await abandon(store)
        async with deployment.node("b") as other:
            (job,) = await other.dequeue(*topic, 1, None, 30_000)
            await other.ack(*topic, [Handle(job.id)])
            async with open_mover(deployment.dsns) as moving:
                await moving.move(topic, 1)
            assert await deployment.rows("SELECT FROM flush_marks", shard=1)
            async with deployment.node("a") as store:
                assert await drain(store, topic[1]) == []
                assert not store._wal.outstanding

    asyncio.run(main())


def test_the_copy_of_the_map_in_redis_serves_while_the_first_shard_is_down(
    deployment: Deployment,
) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        async with deployment.node():
            pass
        async with open_mover(deployment.dsns) as moving:
            await moving.move(topic, 1)
        async with deployment.node():
            pass
        gone = deployment.at(dsns=["postgresql://leveret@127.0.0.1:1/none", deployment.dsns[1]])
        async with gone.node("b", missing=1) as store:
            await store.enqueue([new(topic[1], b"1")])
            assert await drain(store, topic[1]) == [b"1"]

    asyncio.run(main())
