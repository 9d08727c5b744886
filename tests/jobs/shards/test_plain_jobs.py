"""Jobs of one topic without keys: their insert, which takes all of them for new at first."""

import asyncio

import asyncpg
import pytest
from msgspec import structs

from leveret.job_model import Handle
from leveret.job_service.shards import ShardsStore, migration
from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.settings import FLUSH_BYTES
from leveret.job_service.snowflake import first_of
from tests.jobs.shards.deployment import QUIET, TOPIC, WITHIN_S, Deployment, drain, handles, new

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

HOUR_MS = 3_600_000
STEPS_BEFORE = 14  # the version of databases without `leveret_put_plain`


def jobs_of(store: ShardsStore, count: int, age_ms: int = 0) -> list[BufferedJob]:
    """New jobs of the topic; the payload of each is its number."""
    now_ms = store._tables.clock.now_ms()
    ids = store._id_generator.make_ids(count, now_ms)
    return [
        BufferedJob(
            id=id - (age_ms << 22),
            namespace=TOPIC[0],
            topic=TOPIC[1],
            priority=number,
            deliver_after_ms=now_ms,
            created_ms=now_ms,
            idempotency_key=None,
            fair_key=None,
            payload=b"%d" % number,
        )
        for number, id in enumerate(ids)
    ]


async def put(store: ShardsStore, jobs: list[BufferedJob]) -> None:
    await store._tables.put(store._routes.shard_of(TOPIC), jobs)


def test_jobs_that_are_inserted_again_are_not_doubled_and_new_ones_among_them_come(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = jobs_of(store, 6)
            await put(store, jobs[1:4])
            (done, *_) = await store.dequeue(*TOPIC, 1, None, 0)
            await store.ack(*TOPIC, handles([done]))  # its mark alone is left
            await put(store, jobs)
            assert await drain(store, "t") == [b"0", b"2", b"3", b"4", b"5"]

    asyncio.run(main())


def test_jobs_that_were_taken_back_before_they_came_stay_away(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = jobs_of(store, 3)
            await store._tables.undo(store._routes.shard_of(TOPIC), jobs[1:2])
            await put(store, jobs)
            assert await drain(store, "t") == [b"0", b"2"]

    asyncio.run(main())


def test_jobs_below_the_floor_come_only_by_force(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            now_ms = store._tables.clock.now_ms()
            await deployment.rows("UPDATE floors SET floor = $1", first_of(now_ms - 1_000))
            jobs = jobs_of(store, 2, age_ms=HOUR_MS)
            await put(store, jobs)
            assert await drain(store, "t") == []
            store._tables.forced.add(store._routes.shard_of(TOPIC).index)
            await put(store, jobs)
            assert await drain(store, "t") == [b"0", b"1"]

    asyncio.run(main())


def test_delayed_jobs_keep_their_times(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            at_ms = store._tables.clock.now_ms() + HOUR_MS
            enqueued = await store.enqueue([new(deliver_after_ms=at_ms), new(payload=b"now")])
            assert await drain(store, "t") == [b"now"]
            found = await store.find(*TOPIC, enqueued.ids[0])
            assert found is not None
            assert (found.state, found.deliver_after_ms) == ("scheduled", at_ms)

    asyncio.run(main())


@pytest.mark.parametrize("already_gone", [0, 2, 4, 6])
def test_flushed_jobs_leave_the_buffer_and_no_other(
    deployment: Deployment, already_gone: int
) -> None:
    async def main() -> None:
        settings = structs.replace(QUIET, flush_delay_ms=3_600_000)
        async with deployment.node(settings=settings) as store:
            store._flushers[store._routes.shard_of(TOPIC).index]._began_s = 1e12  # no round begins
            ids = (await store.enqueue([new() for _ in range(6)])).ids
            if already_gone:  # another node has flushed them
                await store._redis.trim(TOPIC, ids[:already_gone], None)
            await store._redis.trim(TOPIC, ids[:4], None)
            left = await store._redis.read(TOPIC, 10, FLUSH_BYTES)
            assert [int.from_bytes(raw[:8], "big") for raw in left] == ids[max(4, already_gone) :]
            assert ((*TOPIC,) in await store._redis.buffers()) == bool(left)
            await store._redis.trim(TOPIC, ids[4:], None)
            store._wal.settle(ids)

    asyncio.run(main())


def test_a_database_of_an_earlier_version_keeps_its_jobs(
    new_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(migration, "STEPS", migration.STEPS[:STEPS_BEFORE])
            for dsn in new_deployment.dsns:
                connection = await asyncpg.connect(dsn, timeout=WITHIN_S)
                await migration.migrate(connection)
                await connection.execute(
                    "SELECT leveret_put('{7}', '{n}', '{t}', '{0}', '{0}', '{NULL}',"
                    " ARRAY[now()], '{NULL}', '{NULL}', ARRAY['old'::BYTEA], now(), now(), FALSE)"
                )
                await connection.close()
        async with new_deployment.node(settings=QUIET) as store:
            await store.enqueue([new(payload=b"new")])
            jobs = await store.dequeue(*TOPIC, 10, None, 0)
            assert [job.payload for job in jobs] == [b"old", b"new"]
            assert await store.ack(*TOPIC, [Handle(job.id, job.token) for job in jobs])

    asyncio.run(main())
