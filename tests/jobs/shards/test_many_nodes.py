"""Several nodes at once: migrations, node numbers, keys, schedules, notifications, rates."""

import asyncio

import msgspec
import pytest

from leveret.errors import (
    JobsDrainingError,
    JobsRateLimitError,
    JobsUnavailableError,
    NewerFormatError,
)
from leveret.job_model import (
    BATCH_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Handle,
    Outcome,
    Schedule,
    TopicSettings,
)
from leveret.job_service.shards import ShardsStore, dead_jobs
from leveret.job_service.shards.migration import STEPS
from leveret.job_service.shards.settings import WAIT_POLL_S
from leveret.job_service.shards.sql.loader import CLOCK_SKEW_MS_MAX, LOST_AFTER_MS
from leveret.job_service.snowflake import NODE_MAX, SEQUENCE_BITS
from leveret.testing import ManualClock
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    WITHIN_S,
    Deployment,
    abandon,
    begin_to_wait,
    drain,
    eventually,
    handles,
    hold_flushers,
    is_whole,
    new,
    topic_on,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

UNFLUSHED = msgspec.structs.replace(QUICK, flush_interval_ms=600_000)


def test_nodes_that_start_at_once_migrate_once(new_deployment: Deployment) -> None:
    async def main() -> None:
        stores = [new_deployment.store(str(number)) for number in range(6)]
        await asyncio.gather(*(store.start() for store in stores))
        for store in stores:
            await eventually(lambda store=store: is_whole(store))  # type: ignore[misc]
        rows = await new_deployment.rows("SELECT version FROM leveret_version", shard=0)
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
        async with deployment.two_nodes() as (first, second):
            numbers = {first._id_generator.node_number, second._id_generator.node_number}
            assert len(numbers) == 2
            found = await first.enqueue([new()] * 5), await second.enqueue([new()] * 5)
            ids = found[0].ids + found[1].ids
            assert {id >> SEQUENCE_BITS & NODE_MAX for id in ids} == numbers

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
            store._id_generator._has_left = True  # it renews nothing while the call waits
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
        async with deployment.two_nodes() as (first, second):
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
        async with deployment.two_nodes(clock) as (first, second):
            await first.set_schedule(
                Schedule(name="s", namespace="n", topic="t", cron="* * * * *", payload=b"tick")
            )
            assert [schedule.name for schedule in await second.schedules("n")] == ["s"]
            for _ in range(3):
                clock.advance(minutes=1)
                (job,) = await second.dequeue("n", "t", 5, None, 30_000)
                assert job.payload == b"tick"
                assert await first.dequeue("n", "t", 5, None, 300) == []
                await first.ack("n", "t", handles([job]))
            assert await second.delete_schedule("n", "s")
            assert not await first.delete_schedule("n", "s")

    asyncio.run(main())


def test_a_concurrency_limit_holds_over_nodes(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
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
                await store.nack("n", "t", handles(jobs), "no", None, is_dead=True)
                assert await change("n", "t", None) == 5
                assert await store.dead("n", "t", 0, 9) == []
            assert await store.dequeue("n", "t", 9, None, 0) == []

    asyncio.run(main())


def test_an_urgent_job_of_another_node_goes_first(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            await first.enqueue([new(payload=b"later", priority=5) for _ in range(20)])
            assert await first.dequeue("n", "t", 1, None, 0)
            await second.enqueue([new(payload=b"urgent", priority=1)])
            await second._updater.flush(("n", "t"))
            (job,) = await first.dequeue("n", "t", 1, None, 0)
            assert job.payload == b"urgent"

    asyncio.run(main())


def test_a_waiting_dequeue_costs_no_transactions_and_learns_of_jobs_of_other_nodes(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (here, other):
            waiting = await begin_to_wait(other)
            before = await deployment.last_statement()
            await asyncio.sleep(3 * WAIT_POLL_S)
            assert await deployment.last_statement() == before
            for change in (enqueue, nack, deliver_now, redrive):
                await change(here)
                (job,) = await asyncio.wait_for(waiting, WITHIN_S)
                waiting = await begin_to_wait(other)
                held[:] = handles([job])
            await here.ack("n", "t", held)
            waiting.cancel()

    held: list[Handle] = []

    async def enqueue(store: ShardsStore) -> None:
        await store.enqueue([new()])

    async def nack(store: ShardsStore) -> None:
        assert await store.nack("n", "t", held, "again", 0) == [Outcome.DONE]

    async def deliver_now(store: ShardsStore) -> None:
        assert await store.nack("n", "t", held, "later", 3_600_000) == [Outcome.DONE]
        assert await store.deliver_now("n", "t", [held[0].id]) == [Outcome.DONE]

    async def redrive(store: ShardsStore) -> None:
        await store.nack("n", "t", held, "dead", None, is_dead=True)
        assert await store.redrive("n", "t", None) == 1

    asyncio.run(main())


def test_a_waiting_dequeue_survives_the_loss_of_the_listening_connection(
    deployment: Deployment,
) -> None:
    end = "SELECT pg_terminate_backend($1)"

    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            waiting = await begin_to_wait(second)
            shard = second._routes.shard_of(("n", "t"))
            await deployment.rows(end, shard._listener.get_server_pid(), shard=shard.index)
            await eventually(lambda: not shard.is_listening)
            await first.enqueue([new()])
            assert len(await asyncio.wait_for(waiting, WITHIN_S)) == 1

    asyncio.run(main())


def test_a_free_lease_of_a_limited_topic_is_told_to_other_nodes(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await first.set_settings("n", "t", TopicSettings(concurrency_max=1))
            await first.enqueue([new(), new()])
            (job,) = await first.dequeue("n", "t", 2, 60_000, 0)
            waiting = await begin_to_wait(second)
            await first.ack("n", "t", handles([job]))
            assert len(await asyncio.wait_for(waiting, WITHIN_S)) == 1

    asyncio.run(main())


def test_a_waiting_dequeue_ends_when_the_node_stops(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            waiting = await begin_to_wait(store)
            stopping = asyncio.get_running_loop().create_task(store.stop(WITHIN_S))
            with pytest.raises(JobsDrainingError):
                await asyncio.wait_for(waiting, WITHIN_S)
            await stopping

    asyncio.run(main())


def test_many_handles_are_settled_by_one_statement(deployment: Deployment) -> None:
    """The statement must not compare each handle with each: it would exceed its deadline."""
    count = 20_000

    async def main() -> None:
        async with deployment.node() as store:
            for _ in range(3):
                await store.enqueue([new()])
            jobs = await store.dequeue("n", "t", 3, None, 0)
            named = [Handle(id) for id in range(1, count)]
            named[5000:5000] = handles(jobs)
            outcomes = await store.ack("n", "t", named)
            assert outcomes[5000:5003] == [Outcome.DONE] * 3
            assert outcomes.count(Outcome.UNKNOWN) == count - 1

    asyncio.run(main())


def test_a_stale_ack_beside_a_live_one_takes_nothing_from_it(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock) as store:
            await store.enqueue([new()])
            (old,) = await store.dequeue("n", "t", 1, 1000, 0)
            clock.advance(seconds=2)
            (live,) = await store.dequeue("n", "t", 1, 1000, 0)
            named = [Handle(live.id, old.token), Handle(live.id, live.token), Handle(1)]
            outcomes = await store.ack("n", "t", named)
            assert outcomes == [Outcome.STALE, Outcome.DONE, Outcome.UNKNOWN]

    asyncio.run(main())


def test_a_job_that_many_acknowledge_at_once_is_done_for_one(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            await first.enqueue([new()])
            (job,) = await first.dequeue("n", "t", 1, None, 0)
            acks = [(first, second)[n % 2].ack("n", "t", handles([job])) for n in range(20)]
            outcomes = [outcome for (outcome,) in await asyncio.gather(*acks)]
            assert outcomes.count(Outcome.DONE) == 1

    asyncio.run(main())


def test_an_ack_that_shares_a_statement_with_its_repetition_makes_the_job_unknown(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(), new()])
            first, second = handles(await store.dequeue("n", "t", 2, None, 0))
            # The first ack is sent alone, the others are sent together after it.
            acks = [store.ack("n", "t", [handle]) for handle in (first, second, second)]
            outcomes = [outcome for (outcome,) in await asyncio.gather(*acks)]
            assert outcomes == [Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN]

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


def test_a_lost_node_keeps_the_marks_of_its_own_jobs_only(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    clock = ManualClock()

    async def main() -> None:
        unswept = msgspec.structs.replace(UNFLUSHED, sweep_after_s=600.0)
        lost = await deployment.started("a", clock, unswept)
        hold_flushers(lost)
        await lost.enqueue([new(payload=b"done by the other node") for _ in range(3)])
        async with deployment.node("b", clock, UNFLUSHED) as store:
            assert len(await drain(store, "t")) == 3
            await lost.enqueue([new(payload=b"only in the log")])
            await abandon(lost)
            redis_server.wipe()
            clock.advance((LOST_AFTER_MS + 5 * CLOCK_SKEW_MS_MAX) / 1000)
            await eventually(lambda: is_lost(deployment))
            clock.advance(5 * CLOCK_SKEW_MS_MAX / 1000)
            await store.enqueue([new(payload=b"later") for _ in range(7)])
            assert len(await drain(store, "t")) == 7
            clock.advance(5 * CLOCK_SKEW_MS_MAX / 1000)
            await eventually(lambda: marks(deployment, 3))
            async with deployment.node("a", clock):
                (job,) = await store.dequeue("n", "t", 9, None, 60_000)
                assert job.payload == b"only in the log"
                await store.ack("n", "t", [Handle(job.id, job.token)])
                clock.advance(5 * CLOCK_SKEW_MS_MAX / 1000)
                await eventually(lambda: deployment.is_empty("flush_marks"))
                assert await drain(store, "t") == []

    asyncio.run(main())


async def is_lost(deployment: Deployment) -> bool:
    rows = await deployment.rows("SELECT count(lost_high) AS lost FROM origins")
    return all(row["lost"] == 1 for row in rows)


async def marks(deployment: Deployment, count: int) -> bool:
    return len(await deployment.rows("SELECT FROM flush_marks")) == count
