"""Failures of shards, Redis, the network and nodes, with real servers."""

import asyncio
import signal
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pytest

from leveret.errors import JobsDrainingError, JobsUnavailableError
from leveret.job_model import Handle, Outcome
from leveret.job_service.shards import ShardsStore
from leveret.job_service.shards.background import sweeper
from leveret.job_service.shards.buffered_job import BufferedJob, decode_job
from leveret.job_service.shards.settings import FLUSH_BYTES
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    WITHIN_S,
    Deployment,
    abandon,
    drain,
    eventually,
    hold_flushers,
    new,
    refuses,
    topic_on,
)
from tests.proxy import Proxy, proxy
from tools.services import Postgres, RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

SHORT = msgspec.structs.replace(QUICK, deadline_s=1.5)
UNSWEPT = msgspec.structs.replace(SHORT, sweep_after_s=600.0)
SLOW_MODE = msgspec.structs.replace(QUICK, is_slow_mode=True)


async def until(store: ShardsStore, topic: str, count: int) -> list[bytes]:
    """Payloads of a topic, as soon as there are so many."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await drained(store, topic)
            await asyncio.sleep(0.02)
    return found


async def drained(store: ShardsStore, topic: str) -> list[bytes]:
    """Payloads of everything that is ready, as soon as somebody answers within the deadline."""
    while True:
        try:
            return await drain(store, topic)
        except JobsUnavailableError:
            await asyncio.sleep(0.02)


def _through(line: Proxy, url: str) -> str:
    return f"redis://127.0.0.1:{line.port}/{url.rpartition('/')[2]}"


@dataclass
class Shaken:
    """Whether calls succeed again after a failure."""

    store: ShardsStore

    async def recovers(self, topic: str, **more: Any) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.store.enqueue([new(topic, b"again", **more)])
                    return
                except JobsUnavailableError:
                    await asyncio.sleep(0.05)


def test_a_shard_that_is_down_is_named_and_the_others_work(
    apart: Deployment, other_postgres: Postgres
) -> None:
    here, there = topic_on(0), topic_on(1)

    async def main() -> None:
        async with apart.node() as store:
            await store.enqueue([new(there, b"kept")])
            assert await drain(store, there) == [b"kept"]
            other_postgres.end(signal.SIGKILL)
            try:
                await eventually(lambda: not store._shards[1].is_up)  # by the probe alone
                for call in (
                    store.enqueue([new(there)]),
                    store.enqueue([new(here), new(there)]),
                    store.dequeue("n", there, 1, None, 0),
                    store.ack("n", there, [Handle(1)]),
                ):
                    assert "shard 1" in await refuses(call, JobsUnavailableError)
                await store.enqueue([new(here, b"here")])
                assert await drain(store, here) == [b"here"]
            finally:
                other_postgres.start()
            await Shaken(store).recovers(there)
            assert await until(store, there, 1) == [b"again"]

    asyncio.run(main())


def test_what_was_buffered_for_a_shard_is_kept_until_it_is_back(
    apart: Deployment, other_postgres: Postgres
) -> None:
    there = topic_on(1)

    async def main() -> None:
        async with apart.node() as store:
            other_postgres.end(signal.SIGKILL)
            try:
                taken = 0
                for _ in range(1000):  # the breaker is closed until somebody notices
                    try:
                        await store.enqueue([new(there, b"%d" % taken)])
                    except JobsUnavailableError:
                        break
                    taken += 1
                assert taken > 0
            finally:
                other_postgres.start()
            found = await until(store, there, taken)
            assert sorted(found, key=int) == [b"%d" % number for number in range(taken)]

    asyncio.run(main())


def test_a_node_starts_while_a_shard_is_down(apart: Deployment, other_postgres: Postgres) -> None:
    here, there = topic_on(0), topic_on(1)

    async def main() -> None:
        other_postgres.end(signal.SIGKILL)
        try:
            store = await apart.started(missing=1)
            await store.enqueue([new(here, b"here")])
            assert "shard 1" in await refuses(store.enqueue([new(there)]), JobsUnavailableError)
        finally:
            other_postgres.start()
        await Shaken(store).recovers(there)
        assert await until(store, there, 1) == [b"again"]
        await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_restarted_postgresql_loses_nothing(apart: Deployment, other_postgres: Postgres) -> None:
    there = topic_on(1)

    async def main() -> None:
        async with apart.node() as store:
            sent: list[bytes] = []
            begun = asyncio.Event()

            async def send() -> None:
                """Send jobs before, while and after the server restarts."""
                for number in count():
                    try:
                        await store.enqueue([new(there, b"%d" % number)])
                        sent.append(b"%d" % number)
                    except JobsUnavailableError:
                        await asyncio.sleep(0.01)
                    if len(sent) == 10:
                        begun.set()
                    if len(sent) == 300:
                        return

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                await begun.wait()
                await asyncio.to_thread(other_postgres.restart, signal.SIGQUIT)
            assert sorted(await until(store, there, len(sent))) == sorted(sent)

    asyncio.run(main())


def test_without_redis_writes_fail_and_reads_go_to_postgresql(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.at(redis_url=own_redis.url).node() as store:
            await store.enqueue([new(payload=b"1"), new(payload=b"2")])
            (first,) = await store.dequeue("n", "t", 1, None, 0)
            own_redis.end()
            assert "redis" in await refuses(store.enqueue([new()]), JobsUnavailableError)
            assert await store.ack("n", "t", [Handle(first.id, first.token)]) == [Outcome.DONE]
            assert await drain(store, "t") == [b"2"]
            own_redis.start()
            await Shaken(store).recovers("t")
            assert await until(store, "t", 1) == [b"again"]

    asyncio.run(main())


def test_nothing_of_a_call_that_failed_is_delivered_later(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    async def main() -> None:
        there = deployment.at(redis_url=own_redis.url)
        store = await there.started()
        own_redis.end()
        await refuses(store.enqueue([new(payload=b"failed")]), JobsUnavailableError)
        await abandon(store)
        own_redis.start()
        async with there.node() as store:  # the log is replayed
            await store.enqueue([new(payload=b"later")])
            assert await until(store, "t", 1) == [b"later"]
            assert await drain(store, "t") == []

    asyncio.run(main())


def test_slow_mode_writes_to_postgresql(deployment: Deployment, own_redis: RedisServer) -> None:
    async def main() -> None:
        async with deployment.at(redis_url=own_redis.url).node(settings=SLOW_MODE) as store:
            (first,) = (await store.enqueue([new(payload=b"1", idempotency_key="k")])).ids
            assert await drain(store, "t") == [b"1"]
            own_redis.end()
            await refuses(store.enqueue([new()]), JobsUnavailableError)  # which finds it gone
            ids = (await store.enqueue([new(payload=b"2"), new(idempotency_key="k")])).ids
            assert ids[1] == first
            assert await drain(store, "t") == [b"2"]
            own_redis.start()

    asyncio.run(main())


def test_slow_mode_makes_ids_also_when_the_lease_in_redis_is_over(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    brief = msgspec.structs.replace(SLOW_MODE, node_lease_ms=400)

    async def main() -> None:
        async with deployment.at(redis_url=own_redis.url).node(settings=brief) as store:
            own_redis.end()
            await eventually(lambda: (store._id_generator.node_number or 0) >= 768)
            await Shaken(store).recovers("t")  # a lease so brief may be over again by now
            assert await until(store, "t", 1) == [b"again"]
            own_redis.start()
            await eventually(lambda: (store._id_generator.node_number or 1023) < 768)

    asyncio.run(main())


def test_a_wiped_redis_loses_nothing(deployment: Deployment, redis_server: RedisServer) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            hold_flushers(store)
            await store.enqueue([new(payload=b"%d" % number) for number in range(20)])
            redis_server.wipe()
            found = await until(store, "t", 20)
            assert sorted(found, key=int) == [b"%d" % number for number in range(20)]

    asyncio.run(main())


def test_a_shard_that_refuses_statements_is_named_and_others_go_on(deployment: Deployment) -> None:
    refusing, fine = topic_on(0), topic_on(1)

    async def main() -> None:
        async with deployment.node() as store:
            for topic in (refusing, fine):
                await store.enqueue([new(topic)])
                await store._updater.flush(("n", topic))
            await deployment.rows("ALTER TABLE items RENAME TO elsewhere", shard=0)
            told = await refuses(store.dequeue("n", refusing, 1, None, 0), JobsUnavailableError)
            assert "shard 0" in told
            assert "refuses" in told
            assert await drain(store, fine) == [b"x"]
            await deployment.rows("ALTER TABLE elsewhere RENAME TO items", shard=0)
            assert await drain(store, refusing) == [b"x"]

    asyncio.run(main())


def test_a_shard_that_refuses_jobs_of_the_log_holds_back_no_other(
    deployment: Deployment, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_JOBS", 1)
    refusing, fine = topic_on(0), topic_on(1)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            hold_flushers(store)
            for topic in (refusing, refusing, refusing, fine):
                await store.enqueue([new(topic)])
            redis_server.wipe()
            await deployment.rows("ALTER TABLE items RENAME TO elsewhere", shard=0)
            reads: list[list[int]] = []
            read = store._wal.read

            def counted(ids: list[int]) -> list[BufferedJob]:
                reads.append(ids)
                return read(ids)

            monkeypatch.setattr(store._wal, "read", counted)
            await store._sweeper.sweep(0.0)
            assert len(await deployment.rows("SELECT FROM items", shard=1)) == 1
            reads.clear()
            await store._sweeper.sweep(0.0)
            assert len(reads) == 1, "the other jobs of the shard wait too"
            await deployment.rows("ALTER TABLE elsewhere RENAME TO items", shard=0)
            await store._sweeper.sweep(0.0)
            assert not store._wal.outstanding

    asyncio.run(main())


def test_what_is_done_in_a_shard_is_told_so_though_redis_dies_meanwhile(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    late = msgspec.structs.replace(QUICK, probe_s=600.0)

    async def main() -> None:
        async with deployment.at(redis_url=own_redis.url).node(settings=late) as store:
            await store.enqueue([new(), new()])
            first, second = await store.dequeue("n", "t", 2, None, 0)
            own_redis.end()
            given_back = [Handle(first.id, first.token)]
            assert await store.nack("n", "t", given_back, "no", 0) == [Outcome.DONE]
            store._redis.health.is_up = True  # as long as nobody has noticed
            dead = [Handle(second.id, second.token)]
            assert await store.nack("n", "t", dead, "no", None, is_dead=True) == [Outcome.DONE]
            store._redis.health.is_up = True
            assert await store.redrive("n", "t", None) == 1

    asyncio.run(main())


def test_a_killed_node_replays_its_log(deployment: Deployment, redis_server: RedisServer) -> None:
    async def main() -> None:
        store = await deployment.started()
        hold_flushers(store)
        await store.enqueue([new(payload=b"%d" % number) for number in range(50)])
        await abandon(store)
        redis_server.wipe()
        async with deployment.node() as store:
            found = await drain(store, "t")
            assert found == [b"%d" % number for number in range(50)]

    asyncio.run(main())


def test_a_replay_does_not_bring_back_what_another_node_flushed_and_workers_acked(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        store = await deployment.started("a")
        await store.enqueue([new(payload=b"1")])
        await abandon(store)  # before its flusher had a turn
        assert not await deployment.rows("SELECT FROM items")
        async with deployment.node("b") as other:
            assert await until(other, "t", 1) == [b"1"]
            async with deployment.node("a") as store:
                assert await drain(store, "t") == []
                assert await drain(other, "t") == []
                assert not store._wal.outstanding

    asyncio.run(main())


def test_two_nodes_that_flush_the_same_buffer_insert_each_job_once(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            for _ in range(20):
                await first.enqueue([new(payload=b"x") for _ in range(20)])
                await asyncio.gather(
                    first._updater.flush(("n", "t")), second._updater.flush(("n", "t"))
                )
            assert len(await drain(first, "t")) + len(await drain(second, "t")) == 400

    asyncio.run(main())


def test_a_flusher_that_comes_late_does_not_bring_back_what_is_done(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            topic = "n", topic_on(0)
            hold_flushers(first)
            hold_flushers(second)
            await first.enqueue([new(topic[1], b"1")])
            read = [decode_job(raw) for raw in await second._redis.read(topic, 10, FLUSH_BYTES)]
            assert await until(first, topic[1], 1) == [b"1"]
            await second._tables.put(second._shards[0], read)
            assert await drain(first, topic[1]) == []
            assert await drain(second, topic[1]) == []

    asyncio.run(main())


@pytest.mark.parametrize("which", ["redis", "postgres"])
def test_a_stalled_network_ends_every_call_by_its_deadline(
    deployment: Deployment, redis_server: RedisServer, postgres: Postgres, which: str
) -> None:
    async def main() -> None:
        port = redis_server.port if which == "redis" else postgres.port
        async with proxy(port) as line:
            dsns = [dsn.replace(f":{postgres.port}/", f":{line.port}/") for dsn in deployment.dsns]
            behind = (
                deployment.at(redis_url=_through(line, deployment.redis_url))
                if which == "redis"
                else deployment.at(dsns=dsns)
            )
            async with deployment.node("before"):
                pass  # tables are made without a short deadline
            async with behind.node(settings=SHORT) as store:
                await Shaken(store).recovers("t")
                assert await until(store, "t", 1) == [b"again"]
                line.stall()
                if which == "redis":
                    assert "redis" in await refuses(store.enqueue([new()]), JobsUnavailableError)
                    assert await drained(store, "t") == []
                else:
                    calls = store.dequeue("n", "t", 1, None, 0)
                    assert "shard" in await refuses(calls, JobsUnavailableError)
                    assert "shard" in await refuses(store.enqueue([new()]), JobsUnavailableError)
                line.flow()
                await Shaken(store).recovers("t")
                assert await until(store, "t", 1) == [b"again"]

    asyncio.run(main())


def test_a_push_that_arrives_after_its_call_failed_is_void(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    """The bytes are on their way when the deadline passes, and Redis gets them later."""

    async def main() -> None:
        async with proxy(redis_server.port) as line:
            behind = deployment.at(redis_url=_through(line, deployment.redis_url))
            # No sweep: the call itself makes it void, before it raises.
            async with deployment.node("b") as other, behind.node(settings=UNSWEPT) as store:
                await Shaken(store).recovers("t", idempotency_key="first")
                assert await until(other, "t", 1) == [b"again"]
                line.stall()
                failed = new(payload=b"late", idempotency_key="k")
                await refuses(store.enqueue([failed]), JobsUnavailableError)
                line.flow()
                await Shaken(store).recovers("t")
                assert await until(other, "t", 1) == [b"again"]
                assert await drain(other, "t") == []
                await other.enqueue([new(payload=b"new", idempotency_key="k")])
                assert await until(other, "t", 1) == [b"new"]

    asyncio.run(main())


def test_a_job_whose_call_still_waits_is_not_swept(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    """Redis takes longer than the sweeper: it may yet say that the key is another job's."""
    still = msgspec.structs.replace(QUICK, sweep_after_s=600.0, flush_interval_ms=600_000)

    async def main() -> None:
        async with proxy(redis_server.port) as line:
            behind = deployment.at(redis_url=_through(line, deployment.redis_url))
            beside = deployment.node("b", settings=still)
            async with beside as other, behind.node(settings=still) as store:
                hold_flushers(other)
                ids = (await other.enqueue([new(payload=b"first", idempotency_key="k")])).ids
                line.stall()
                late = new(payload=b"late", idempotency_key="k")
                async with asyncio.TaskGroup() as group:
                    call = group.create_task(store.enqueue([late]))
                    await eventually(lambda: len(store._wal.outstanding) == 1)
                    await store._sweeper.sweep(0.0)
                    assert not await deployment.rows("SELECT FROM items")
                    line.flow()
                assert call.result().ids == ids
                assert await until(other, "t", 1) == [b"first"]
            redis_server.wipe()
            async with deployment.node("b") as other:
                assert (await other.enqueue([late])).ids == ids  # as the tables have it
                assert await drain(other, "t") == []

    asyncio.run(main())


def test_a_stop_without_jobs_to_store_succeeds_though_a_shard_is_gone(
    apart: Deployment, other_postgres: Postgres
) -> None:
    async def main() -> None:
        store = await apart.started(settings=QUIET)
        other_postgres.end()  # the node has not noticed yet
        try:
            await store.stop(WITHIN_S)
        finally:
            other_postgres.start()

    asyncio.run(main())


def test_a_graceful_stop_brings_everything_to_the_tables(deployment: Deployment) -> None:
    async def main() -> None:
        store = await deployment.started()
        await store.enqueue([new(payload=b"x") for _ in range(500)])
        await store.stop(WITHIN_S)
        rows = await deployment.rows("SELECT count(*) AS jobs FROM items")
        assert sum(row["jobs"] for row in rows) == 500
        assert not list((deployment.folder / "a").glob("*.wal"))

    asyncio.run(main())


def test_a_stop_without_postgresql_fails_and_keeps_the_rest(
    apart: Deployment, other_postgres: Postgres
) -> None:
    there = topic_on(1)

    async def main() -> None:
        store = await apart.started()
        other_postgres.end(signal.SIGKILL)
        try:
            await store.enqueue([new(there, b"kept")])
            assert "1 jobs stay" in await refuses(store.stop(1.0), JobsUnavailableError)
            await refuses(store.enqueue([new(there)]), JobsDrainingError)
        finally:
            other_postgres.start()
        async with apart.node() as store:
            assert await until(store, there, 1) == [b"kept"]

    asyncio.run(main())
