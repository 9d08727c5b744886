"""Several nodes at once: migrations, node numbers, keys, schedules, prefetched jobs, rates."""

import asyncio

import msgspec
import pytest

from leveret.errors import JobsRateLimitError, JobsUnavailableError, NewerFormatError
from leveret.job_model import (
    BATCH_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Handle,
    Outcome,
    Schedule,
    TopicSettings,
)
from leveret.job_service.shards import dead_jobs
from leveret.job_service.shards.migration import STEPS
from leveret.job_service.snowflake import node_of
from leveret.testing import ManualClock
from tests.jobs.shards.deployment import (
    QUICK,
    WITHIN_S,
    Deployment,
    abandon,
    drain,
    eventually,
    is_whole,
    new,
    topic_on,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

LASTING = msgspec.structs.replace(QUICK, prefetch_lease_ms=60_000)
UNFLUSHED = msgspec.structs.replace(QUICK, flush_interval_ms=600_000)


def test_nodes_that_start_at_once_migrate_once(deployment: Deployment) -> None:
    async def main() -> None:
        stores = [deployment.store(str(number)) for number in range(6)]
        await asyncio.gather(*(store.start() for store in stores))
        for store in stores:
            await eventually(lambda store=store: is_whole(store))  # type: ignore[misc]
        rows = await deployment.rows("SELECT version FROM leveret_version", shard=0)
        assert [row["version"] for row in rows] == list(range(1, len(STEPS) + 1))
        await asyncio.gather(*(store.stop(WITHIN_S) for store in stores))

    asyncio.run(main())


def test_a_database_of_a_later_version_is_refused(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node():
            pass
        await deployment.rows("INSERT INTO leveret_version VALUES (99)", shard=1)
        store = deployment.store()
        with pytest.raises(NewerFormatError):
            await store.start()
        await abandon(store)

    asyncio.run(main())


def test_every_node_has_a_number_of_its_own(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("a") as first, deployment.node("b") as second:
            numbers = {first._id_generator.node_number, second._id_generator.node_number}
            assert len(numbers) == 2
            found = await first.enqueue([new()] * 5), await second.enqueue([new()] * 5)
            ids = found[0].ids + found[1].ids
            assert {node_of(id) for id in ids} == numbers

    asyncio.run(main())


def test_a_lost_number_stops_the_making_of_ids_until_there_is_a_new_one(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    brief = msgspec.structs.replace(QUICK, node_lease_ms=400)

    async def main() -> None:
        async with deployment.node(settings=brief) as store:
            old = store._id_generator.node_number
            await store._redis._redis.set(f"mqueue:node:{old}", "somebody else")
            await eventually(lambda: store._id_generator.node_number not in (old, None))
            store._id_generator._valid_until_s = 0.0
            with pytest.raises(JobsUnavailableError, match="number"):
                await store.enqueue([new()])

    asyncio.run(main())


def test_a_wiped_redis_leases_no_number_twice(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node("a") as first:
            redis_server.wipe()
            async with deployment.node("b") as second:  # which asks for the same numbers, in order
                assert first._id_generator.node_number != second._id_generator.node_number

    asyncio.run(main())


def test_one_key_from_many_clients_of_two_nodes_is_one_job(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    job = new(payload=b"once", idempotency_key="k")

    async def main() -> None:
        async with deployment.node("a") as first, deployment.node("b") as second:
            calls = [(first, second)[number % 2].enqueue([job]) for number in range(100)]
            ids = {id for answer in await asyncio.gather(*calls) for id in answer.ids}
            assert len(ids) == 1
            assert await drain(first, "t") == [b"once"]
            assert {*(await second.enqueue([job])).ids} == ids  # done, and known
        redis_server.wipe()
        async with deployment.node("a") as first:
            assert {*(await first.enqueue([job])).ids} == ids  # by the index
            elsewhere = await first.enqueue([new(topic_on(1), idempotency_key="k")])
            assert elsewhere.ids == list(ids)
            assert await drain(first, "t") == []

    asyncio.run(main())


def test_a_key_is_unique_in_the_table_whatever_redis_says(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node(settings=UNFLUSHED) as store:
            await store.enqueue([new(payload=b"first", idempotency_key="k")])
            await store._redis._redis.delete("mqueue:key:n:k")  # half of its memory is gone
            await store.enqueue([new(payload=b"second", idempotency_key="k")])
            assert await drain(store, "t") == [b"first"]

    asyncio.run(main())


def test_keys_are_forgotten_after_their_time(deployment: Deployment) -> None:
    brief = msgspec.structs.replace(QUICK, keys_kept_ms=200)

    async def main() -> None:
        async with deployment.node(settings=brief) as store:
            (first,) = (await store.enqueue([new(idempotency_key="k")])).ids
            await drain(store, "t")
            await eventually(lambda: deployment.is_empty("keys"))
            assert (await store.enqueue([new(idempotency_key="k")])).ids != [first]

    asyncio.run(main())


def test_a_schedule_is_fired_once_by_many_nodes(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node("a", clock) as first, deployment.node("b", clock) as second:
            await first.set_schedule(
                Schedule(name="s", namespace="n", topic="t", cron="* * * * *", payload=b"tick")
            )
            assert [schedule.name for schedule in await second.schedules("n")] == ["s"]
            for _ in range(3):
                clock.advance(minutes=1)
                (job,) = await second.dequeue("n", "t", 5, None, 30_000)
                assert job.payload == b"tick"
                assert await first.dequeue("n", "t", 5, None, 300) == []
                await first.ack("n", "t", [Handle(job.id, job.token)])
            assert await second.delete_schedule("n", "s")
            assert not await first.delete_schedule("n", "s")

    asyncio.run(main())


def test_a_concurrency_limit_holds_over_nodes(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("a") as first, deployment.node("b") as second:
            await first.set_settings("n", "t", TopicSettings(concurrency_max=5))
            await first.enqueue([new() for _ in range(40)])
            calls = [(first, second)[n % 2].dequeue("n", "t", 3, None, 0) for n in range(20)]
            jobs = [job for found in await asyncio.gather(*calls) for job in found]
            assert len(jobs) == 5
            await second.ack("n", "t", [Handle(jobs[0].id)])
            assert len(await first.dequeue("n", "t", 3, None, 0)) == 1

    asyncio.run(main())


def test_a_rate_closes_the_namespace_and_says_for_how_long(deployment: Deployment) -> None:
    limited = msgspec.structs.replace(QUICK, rate_max=10)

    async def main() -> None:
        async with deployment.node(settings=limited) as store:
            await store.enqueue([new() for _ in range(30)])  # three seconds, to be asked again in
            with pytest.raises(JobsRateLimitError) as caught:
                await store.enqueue([new()])
            assert 0 < caught.value.retry_after_s <= 3
            other = msgspec.structs.replace(new(), namespace="m")
            await store.enqueue([other])
            await asyncio.sleep(caught.value.retry_after_s + 0.02)
            await store.enqueue([new()])

    asyncio.run(main())


def test_a_batch_that_is_larger_than_the_rate_comes_in_and_counts_in_full(
    deployment: Deployment,
) -> None:
    limited = msgspec.structs.replace(QUICK, rate_max=10)

    async def main() -> None:
        async with deployment.node(settings=limited) as store:
            assert len((await store.enqueue([new() for _ in range(350)])).ids) == 350
            with pytest.raises(JobsRateLimitError) as refused:
                await store.enqueue([new()])
            assert refused.value.retry_after_s > 10, "the jobs of more than ten seconds came in"

    asyncio.run(main())


def test_prefetched_jobs_are_handed_out_in_order_under_a_new_lease(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=LASTING) as store:
            topic = "n", "t"
            await store.enqueue([new(payload=b"%d" % n, priority=n) for n in (3, 1, 2)])
            await store._flush(topic)
            await store._prefetcher.prefetch(topic)
            assert await store._redis.prefetched(topic) == 3
            (stats,) = await store.stats("n")
            assert (stats.ready, stats.leased) == (3, 0)
            jobs = await store.dequeue(*topic, 2, 60_000, 0)
            assert [job.payload for job in jobs] == [b"1", b"2"]
            rows = await deployment.rows("SELECT status, token FROM items ORDER BY priority")
            assert [row["status"] for row in rows] == ["processing", "processing", "leased"]
            assert [row["token"] for row in rows[:2]] == [job.token for job in jobs]

    asyncio.run(main())


def test_prefetched_jobs_beyond_the_bytes_of_an_answer_are_ready_again(
    deployment: Deployment,
) -> None:
    most = BATCH_BYTES_MAX // PAYLOAD_BYTES_MAX

    async def main() -> None:
        async with deployment.node(settings=LASTING) as store:
            for _ in range(most + 2):
                await store.enqueue([new(payload=bytes(PAYLOAD_BYTES_MAX))])
            await store._flush(("n", "t"))
            await store._prefetcher.prefetch(("n", "t"))
            assert await store._redis.prefetched(("n", "t")) == most + 2
            found = [await store.dequeue("n", "t", 1000, None, 0) for _ in range(3)]
            assert [len(jobs) for jobs in found] == [most, 2, 0]

    asyncio.run(main())


def test_who_shared_a_claim_that_was_cut_gets_jobs_too(deployment: Deployment) -> None:
    most = BATCH_BYTES_MAX // PAYLOAD_BYTES_MAX

    async def main() -> None:
        async with deployment.node() as store:
            for _ in range(most + 2):
                await store.enqueue([new(payload=bytes(PAYLOAD_BYTES_MAX))])
            asking = [store.dequeue("n", "t", 1000, None, 0) for _ in range(3)]
            found = await asyncio.gather(*asking)
            assert sorted(len(jobs) for jobs in found) == [0, 2, most]

    asyncio.run(main())


def test_all_of_the_dead_are_redriven_or_deleted_in_slices(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_jobs, "SLICE", 2)

    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new() for _ in range(5)])
            for change in (store.redrive, store.delete_dead):
                jobs = await store.dequeue("n", "t", 5, None, 0)
                handles = [Handle(job.id, job.token) for job in jobs]
                await store.nack("n", "t", handles, "no", None, is_dead=True)
                assert await change("n", "t", None) == 5
                assert await store.dead("n", "t", 0, 9) == []
            assert await store.dequeue("n", "t", 9, None, 0) == []

    asyncio.run(main())


def test_an_urgent_job_is_not_stuck_behind_prefetched_ones(deployment: Deployment) -> None:
    async def main() -> None:
        lasting = deployment.node("a", settings=LASTING)
        async with lasting as first, deployment.node("b", settings=LASTING) as second:
            await first.enqueue([new(payload=b"later", priority=5) for _ in range(20)])
            await first._flush(("n", "t"))
            await first._prefetcher.prefetch(("n", "t"))
            await second.enqueue([new(payload=b"urgent", priority=1)])
            (job,) = await first.dequeue("n", "t", 1, None, 0)
            assert job.payload == b"urgent"

    asyncio.run(main())


def test_what_expired_in_the_list_is_not_handed_out_by_it(deployment: Deployment) -> None:
    clock = ManualClock()
    quiet = msgspec.structs.replace(QUICK, tick_s=600.0)

    async def main() -> None:
        async with deployment.node(clock=clock, settings=quiet) as store:
            await store.enqueue([new(payload=b"1")])
            await store._flush(("n", "t"))
            await store._prefetcher.prefetch(("n", "t"))
            clock.advance((quiet.prefetch_lease_ms + 1) / 1000)
            (job,) = await store.dequeue("n", "t", 5, None, 0)
            assert job.attempt == 1  # it went back to the table, without a failure
            assert (await store.find("n", "t", job.id)).failures == []  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_busy_topic_is_prefetched(deployment: Deployment) -> None:
    busy = msgspec.structs.replace(QUICK, prefetch_from=2)

    async def main() -> None:
        async with deployment.node(settings=busy) as store:
            await store.enqueue([new(payload=b"%d" % n) for n in range(200)])
            found: list[bytes] = []
            ahead = 0
            while len(found) < 200:
                jobs = await store.dequeue("n", "t", 1, None, 1000)
                ahead += await store._redis.prefetched(("n", "t"))
                found += [job.payload for job in jobs]
            assert found == [b"%d" % n for n in range(200)]
            assert ahead > 0

    asyncio.run(main())


def test_a_stale_ack_beside_a_live_one_takes_nothing_from_it(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock) as store:
            await store.enqueue([new()])
            (old,) = await store.dequeue("n", "t", 1, 1000, 0)
            clock.advance(seconds=2)
            (live,) = await store.dequeue("n", "t", 1, 1000, 0)
            handles = [Handle(live.id, old.token), Handle(live.id, live.token), Handle(1)]
            outcomes = await store.ack("n", "t", handles)
            assert outcomes == [Outcome.STALE, Outcome.DONE, Outcome.UNKNOWN]

    asyncio.run(main())


def test_a_job_that_many_acknowledge_at_once_is_done_for_one(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("a") as first, deployment.node("b") as second:
            await first.enqueue([new()])
            (job,) = await first.dequeue("n", "t", 1, None, 0)
            handles = [Handle(job.id, job.token)]
            acks = [(first, second)[n % 2].ack("n", "t", handles) for n in range(20)]
            outcomes = [outcome for (outcome,) in await asyncio.gather(*acks)]
            assert outcomes.count(Outcome.DONE) == 1

    asyncio.run(main())


def test_flush_marks_go_when_no_log_needs_them(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node("a", clock) as store:
            await store.enqueue([new() for _ in range(10)])
            assert len(await drain(store, "t")) == 10
            assert len(await deployment.rows("SELECT FROM flush_marks")) == 10
            clock.advance(minutes=5)
            await eventually(lambda: deployment.is_empty("flush_marks"))
            await store.enqueue([new(payload=b"after")])
            assert await drain(store, "t") == [b"after"]

    asyncio.run(main())
