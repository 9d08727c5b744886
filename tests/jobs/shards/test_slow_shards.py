"""A shard that is too slow for many jobs at once gets a few at a time."""

import asyncio

import asyncpg
import pytest
from msgspec import structs

from leveret.job_service.shards.buffered_job import BufferedJob
from leveret.job_service.shards.insert_limit import InsertLimit
from leveret.job_service.shards.settings import FLUSH_BYTES
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    WITHIN_S,
    Deployment,
    abandon,
    eventually,
    hold_flushers,
    new,
    topic_on,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

JOBS = 40
FAST_JOBS = 10  # that the slow shard inserts at once; more take longer than any deadline
SLOW = f"""
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT count(*) FROM inserted) > {FAST_JOBS} THEN PERFORM pg_sleep(600); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER slow AFTER INSERT ON items REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION slow();
"""
IMPATIENT = structs.replace(QUICK, deadline_s=1.0, flush_max=64)


@pytest.mark.parametrize("source", ["buffer", "log"])
def test_a_shard_that_is_too_slow_for_a_full_batch_gets_all_jobs(
    deployment: Deployment, redis_server: RedisServer, source: str
) -> None:
    topic = topic_on(0)

    async def main() -> None:
        store = await deployment.started("a")
        hold_flushers(store)
        await store.enqueue([new(topic, b"%d" % number) for number in range(JOBS)])
        await abandon(store)
        if source == "log":
            redis_server.wipe()
        connection = await asyncpg.connect(deployment.dsns[0], timeout=WITHIN_S)
        await connection.execute(SLOW)
        await connection.close()

        async def are_all_inserted() -> bool:
            return len(await deployment.rows("SELECT FROM items", shard=0)) == JOBS

        store = deployment.store("a" if source == "log" else "b", settings=IMPATIENT)
        await store.start()
        await eventually(are_all_inserted)
        await abandon(store)

    asyncio.run(main())


def test_a_buffer_is_read_up_to_a_number_of_jobs_or_bytes(deployment: Deployment) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        store = await deployment.started(settings=QUIET)
        hold_flushers(store)
        await store.enqueue([new(topic[1], b"x" * 1_000_000) for _ in range(6)])
        read = store._redis.read
        assert len(await read(topic, 100, FLUSH_BYTES)) == 6
        assert len(await read(topic, 4, FLUSH_BYTES)) == 4
        assert len(await read(topic, 100, 2_500_000)) == 3
        assert len(await read(topic, 100, 1)) == 1
        await abandon(store)

    asyncio.run(main())


def test_the_limit_falls_to_one_job_and_rises_again() -> None:
    limit = InsertLimit(1_000)
    jobs = [BufferedJob(id, "n", "t", 0, 1, 1, None, None, b"x" * 100_000) for id in range(1_000)]
    assert limit.fitting(jobs) == -(-FLUSH_BYTES // 100_000)
    limit.on_failed()
    assert limit.fitting(jobs) == -(-FLUSH_BYTES // 200_000)
    for _ in range(40):
        limit.on_failed()
    assert limit.fitting(jobs) == 1
    for _ in range(300):
        limit.on_done()
    assert limit.fitting(jobs) == -(-FLUSH_BYTES // 100_000)
    assert limit.jobs == 1_000
