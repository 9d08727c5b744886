"""A server that fails affects only the calls that need it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis
from msgspec import structs

from leveret.job_model import NewJob, Schedule, TopicSettings
from leveret.job_service.shards import ShardsStore, job_lists, schedules
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    begin_to_wait,
    drain,
    eventually,
    handles,
    hold_flushers,
    new,
    refuses,
    topic_on,
)
from tests.proxy import proxy
from tools.services import Postgres, RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

HERE, THERE = topic_on(0), topic_on(1)  # topics on a shard that stays, and on one that goes down


async def _limit_connections(dsn: str, limit: int) -> str:
    """The address of a database for a role that may open only a few connections."""
    parts = urlsplit(dsn)
    database = parts.path.removeprefix("/")
    connection = await asyncpg.connect(dsn, timeout=WITHIN_S)
    await connection.execute(f"CREATE ROLE few_{database} LOGIN CONNECTION LIMIT {limit}")
    await connection.execute(f"ALTER DATABASE {database} OWNER TO few_{database}")
    await connection.execute(f"GRANT ALL ON SCHEMA public TO few_{database}")
    await connection.close()
    return dsn.replace("leveret@", f"few_{database}@")


def test_a_refused_connection_leaves_those_that_work(new_deployment: Deployment) -> None:
    async def main() -> None:
        limited = [await _limit_connections(dsn, 2) for dsn in new_deployment.dsns]
        async with new_deployment.at(dsns=limited).node() as store:
            await store.enqueue([new(f"t{n}") for n in range(30)])
            calls = (store.dequeue("n", f"t{n}", 1, None, 0) for n in range(30))
            found = await asyncio.gather(*calls)
            assert [len(jobs) for jobs in found] == [1] * 30
            assert [shard.health.failures for shard in store._shards] == [0, 0]
            assert sum(shard.refused_connections for shard in store._shards) > 0

    asyncio.run(main())


def test_a_login_that_is_refused_now_leaves_the_connections_that_work(
    new_deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Its password was changed, for example, and the nodes get the new one by a restart."""

    async def main() -> None:
        limited = [await _limit_connections(dsn, -1) for dsn in new_deployment.dsns]
        async with new_deployment.at(dsns=limited).node() as store:
            topics = [f"t{n}" for n in range(30)]
            await store.enqueue([new(topic) for topic in topics])
            await eventually(lambda: not store._wal.outstanding)
            for dsn in new_deployment.dsns:
                role = f"few_{urlsplit(dsn).path.removeprefix('/')}"
                await new_deployment.rows(f"ALTER ROLE {role} NOLOGIN", shard=0)
            calls = (store.dequeue("n", topic, 1, None, 0) for topic in topics)
            found = await asyncio.gather(*calls)
            assert [len(jobs) for jobs in found] == [1] * 30
            assert [shard.health.failures for shard in store._shards] == [0, 0]
            assert sum(shard.refused_connections for shard in store._shards) > 0
            warnings = [each for each in caplog.messages if "not permitted to log in" in each]
            assert 1 <= len(warnings) <= 2  # one for each shard

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_a_shard_that_is_down_stops_neither_keys_nor_schedules_nor_settings_of_others(
    apart: Deployment, other_postgres: Postgres
) -> None:
    async def main() -> None:
        store = await apart.started()
        try:
            (first,) = (await store.enqueue([new(HERE, idempotency_key="k")])).ids
            other_postgres.end()
            await eventually(lambda: not store._shards[1].is_up)
            assert (await store.enqueue([new(HERE, idempotency_key="k")])).ids == [first]
            nightly = Schedule(name="nightly", namespace="n", topic=HERE, cron="0 3 * * *")
            await store.set_schedule(nightly)
            assert await store.schedules("n") == [nightly]
            await store.set_settings("n", HERE, TopicSettings(retries_max=3))
            assert (await store.settings("n", HERE)).retries_max == 3
            assert await store.delete_schedule("n", "nightly")
            assert await drain(store, HERE) == [b"x"]
        finally:
            other_postgres.start()
            await eventually(lambda: store._shards[1].is_up)
            await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_schedule_that_waits_for_a_silent_redis_does_not_hold_its_shard(
    deployment: Deployment,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    due = "UPDATE schedules SET next_at = now() - INTERVAL '1 s'"

    async def main() -> None:
        async with proxy(redis_server.port) as line:
            there = deployment.redis_url.replace(f":{redis_server.port}/", f":{line.port}/")
            async with deployment.at(redis_url=there).node(settings=QUIET) as store:
                shard = store._routes.shard_of(("n", HERE))
                await store.set_schedule(
                    Schedule(name="s", namespace="n", topic=HERE, cron="0 3 * * *")
                )
                await deployment.rows(due)
                monkeypatch.setattr(schedules, "PATIENCE", 0.0)
                line.stall()
                await store._schedules.fire(shard)
                await store._schedules.fire(shard)
                assert shard.is_up
                line.flow()
                monkeypatch.undo()
                await store._schedules.fire(shard)
                assert await drain(store, HERE) == [b""]

                store._redis.health.on_down("it is gone")
                await deployment.rows(due)
                for _ in range(3):
                    await store._schedules.fire(shard)
                told = [each.getMessage() for each in caplog.records]
                assert sum("the schedule s of n could not fire" in each for each in told) == 1

    asyncio.run(main())


def test_schedules_that_cannot_fire_hold_back_no_other(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them are due, and earlier, than one transaction handles."""
    monkeypatch.setattr(schedules, "FIRED_MAX", 2)
    full = topic_on(0, namespace="m")
    once = "UPDATE schedules SET next_at = now() - INTERVAL '1 s', cron = '0 3 * * *'"
    earlier = "UPDATE schedules SET next_at = now() - INTERVAL '1 h' WHERE namespace = 'm'"

    async def main() -> None:
        async with deployment.node(settings=structs.replace(QUIET, buffer_max=1)) as store:
            hold_flushers(store)
            shard = store._shards[0]
            await store.enqueue([NewJob(namespace="m", topic=full, payload=b"fills it")])
            for number in range(7):
                refused = Schedule(name=f"s{number}", namespace="m", topic=full, cron="@daily")
                await store.set_schedule(refused)
            await store.set_schedule(
                Schedule(name="s", namespace="n", topic=HERE, cron="@daily", payload=b"fired")
            )
            await deployment.rows(once)
            await deployment.rows(earlier)
            await store._schedules.fire(shard)
            assert await drain(store, HERE) == [b"fired"]

            # They rest for a while, and a schedule that becomes due meanwhile does not wait for it.
            monkeypatch.setattr(schedules, "RETRY_S", 3600.0)
            await store._schedules.fire(shard)
            await deployment.rows(f"{once} WHERE namespace = 'n'")
            await store._schedules.fire(shard)
            assert await drain(store, HERE) == [b"fired"]

            monkeypatch.setattr(schedules, "RETRY_S", 0.0)
            for _ in range(8):  # the first call ends the pass; there is room for one job at a time
                await store._updater.flush(("m", full))
                await store._schedules.fire(shard)
            await store._updater.flush(("m", full))
            assert len(await store.dequeue("m", full, 10, None, 0)) == 8

    asyncio.run(main())


def test_a_schedule_whose_timezone_this_machine_lacks_holds_back_no_other(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            for name in ("elsewhere", "here"):
                await store.set_schedule(
                    Schedule(name=name, namespace="n", topic=HERE, cron="@daily")
                )
            await deployment.rows(
                "UPDATE schedules SET next_at = now() - INTERVAL '1 s', timezone ="
                " CASE name WHEN 'elsewhere' THEN 'Europe/Atlantis' ELSE 'UTC' END"
            )
            await store._schedules.fire(store._shards[0])
            assert await drain(store, HERE) == [b""]
            assert "there is no timezone Europe/Atlantis" in caplog.text
            sql = "SELECT name FROM schedules WHERE next_at < now()"
            assert [row["name"] for row in await deployment.rows(sql)] == ["elsewhere"]

    asyncio.run(main())


def test_an_older_version_of_a_schedule_does_not_come_back_with_its_shard(
    apart: Deployment, other_postgres: Postgres
) -> None:
    async def main() -> None:
        store = await apart.started()
        old = Schedule(name="nightly", namespace="n", topic=THERE, cron="0 3 * * *")
        moved = Schedule(name="nightly", namespace="n", topic=HERE, cron="0 4 * * *")
        try:
            await store.set_schedule(old)
            other_postgres.end()
            await eventually(lambda: not store._shards[1].is_up)
            await store.set_schedule(moved)
        finally:
            other_postgres.start()
            await eventually(lambda: store._shards[1].is_up)
        assert await apart.rows("SELECT topic FROM schedules", shard=1) == []
        assert await store.schedules("n") == [moved]
        await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_full_redis_hides_no_jobs(deployment: Deployment, own_redis: RedisServer) -> None:
    async def main() -> None:
        async with deployment.at(redis_url=own_redis.url).node() as store:
            await store.enqueue([new() for _ in range(30)])
            await store.stats(None)  # flushes the buffer
            with closing(redis.Redis(port=own_redis.port)) as client:
                client.config_set("maxmemory", 1)
                assert "refuses" in await refuses(store.enqueue([new()]))
                assert "refuses" in await refuses(store._prefetcher.prefetch(("n", "t")))
                rows = await deployment.rows("SELECT DISTINCT status, attempts FROM items")
                assert [tuple(row) for row in rows] == [("ready", 0)]
                assert len(await drain(store, "t")) == 30
                await eventually(lambda: bool(store.report().faults()))
                (fault,) = store.report().faults()
                assert fault.startswith("redis (") and "'maxmemory'" in fault
                client.config_set("maxmemory", 0)
            await eventually(lambda: not store.report().faults())
            await store.enqueue([new()])

    asyncio.run(main())


def test_a_stalled_shard_does_not_cost_the_node_its_number(deployment: Deployment) -> None:
    impatient = structs.replace(QUICK, deadline_s=3.0, node_lease_ms=60_000)

    async def main() -> None:
        async with deployment.node("before"):
            pass  # tables are made without a short deadline
        async with deployment.node(settings=impatient) as store:
            number = store._id_generator.node_number
            blocker = await asyncpg.connect(deployment.dsns[1], timeout=WITHIN_S)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE node_ids IN ACCESS EXCLUSIVE MODE")
                await store._id_generator.renew()
                assert store._id_generator.node_number == number
            await blocker.close()
            await eventually(lambda: all(shard.is_up for shard in store._shards))

    asyncio.run(main())


def test_a_shard_that_stalls_fails_neither_keys_nor_lists_of_others(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = structs.replace(QUIET, deadline_s=1.0)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            keyed = new(HERE, idempotency_key="k")
            (first,) = (await store.enqueue([keyed])).ids
            stalled = store._shards[1]
            blocker = await asyncpg.connect(deployment.dsns[1], timeout=WITHIN_S)
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE flush_marks IN ACCESS EXCLUSIVE MODE")
                monkeypatch.setattr(stalled, "_settings", short)
                assert (await store.enqueue([keyed])).ids == [first]
            monkeypatch.undo()
            await stalled.probe()
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE")
                monkeypatch.setattr(stalled, "_settings", short)
                assert await store.schedules("n") == []
            await blocker.close()
            assert not stalled.is_up
            monkeypatch.undo()
            await stalled.probe()

    asyncio.run(main())


def test_ranks_of_idle_fair_keys_are_forgotten(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(fair_key=f"customer {n}") for n in range(20)])
            assert len(await drain(store, "t", 5)) == 20
            await store.enqueue([new(fair_key="customer 0"), new(fair_key="customer 0")])
            await drain(store, "t", 1)
            for _ in range(2):
                await deployment.rows(
                    "SELECT leveret_forget_turns(now() + INTERVAL '2 hours', 1000)"
                )
            assert await deployment.is_empty("turns")
            await store.enqueue([new(payload=b"late", fair_key="customer 7")])
            assert await drain(store, "t") == [b"late"]

    asyncio.run(main())


_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()"
)


@asynccontextmanager
async def locked_jobs(deployment: Deployment) -> AsyncIterator[None]:
    """Let each statement on the jobs of the first shard wait."""
    connection = await asyncpg.connect(deployment.dsns[0], timeout=WITHIN_S)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda store: store.stats("n"), "sum(jobs)"),
        (lambda store: store.list_jobs("n", HERE, "leased", 10, ""), "row_number()"),
        (lambda store: store.dead("n", HERE, 0, 10), "i.id = f.id"),
    ],
    ids=["statistics", "lists", "dead"],
)
def test_many_long_reads_use_one_connection_at_a_time(
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[ShardsStore], Coroutine[Any, Any, object]],
    part: str,
) -> None:
    """With many jobs, 64 calls would keep all connections busy: the shard would count as down."""
    monkeypatch.setattr(job_lists, "LIST_MS_MAX", round(WITHIN_S * 1000), raising=False)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await store.enqueue([new(HERE)])
            leased = handles(await store.dequeue("n", HERE, 1, None, 0))
            await store.nack("n", HERE, leased, "no", None, is_dead=True)
            watching = await asyncpg.connect(deployment.dsns[0], timeout=WITHIN_S)
            async with asyncio.TaskGroup() as group:
                async with locked_jobs(deployment):
                    calls = [group.create_task(call(store)) for _ in range(20)]
                    while await watching.fetchval(_WAITING, part) == 0 and not calls[0].done():
                        pass
                    seen = [await watching.fetchval(_WAITING, part) for _ in range(50)]
            await watching.close()
            assert max(seen) <= 1
            assert all(each.result() for each in calls)

    asyncio.run(main())


def test_a_list_that_takes_too_long_is_no_failure_of_its_shard(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lists, "LIST_MS_MAX", 100, raising=False)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            async with locked_jobs(deployment):
                told = await refuses(store.list_jobs("n", HERE, "leased", 10, ""))
            assert "too many jobs" in told
            assert store._shards[0].health.failures == 0

    asyncio.run(main())


def test_dequeues_of_many_topics_cost_a_dequeue_that_waits_no_notification(
    deployment: Deployment,
) -> None:
    """The node keeps an event for each topic only while a dequeue of it runs."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            waiting = await begin_to_wait(store)
            for wait_ms in (0, 1):
                assert await store.dequeue("n", f"other {wait_ms}", 1, None, wait_ms) == []
            assert list(store._signals._events) == [TOPIC]
            await store.enqueue([new()])
            assert len(await asyncio.wait_for(waiting, WITHIN_S)) == 1
            assert not store._signals._events

    asyncio.run(main())


class CountedReads(list[NewJob]):
    """A batch that counts how often all its jobs are read."""

    reads = 0

    def __iter__(self) -> Iterator[NewJob]:
        self.reads += 1
        return super().__iter__()


def test_a_batch_is_not_read_once_for_each_of_its_topics(deployment: Deployment) -> None:
    """A thousand jobs of as many topics would hold the node for a tenth of a second."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            reads = []
            for count in (1, 100):
                batch = CountedReads([new(str(number)) for number in range(count)])
                await store.enqueue(batch)
                reads.append(batch.reads)
            assert max(reads) < 20

    asyncio.run(main())
