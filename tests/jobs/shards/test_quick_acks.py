"""Acks of prefetched jobs: answered by Redis alone, and kept whatever fails meanwhile."""

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from leveret.errors import JobsUnavailableError
from leveret.job_model import Handle, Outcome, TopicSettings
from leveret.job_service.shards.background import note_writer
from leveret.job_service.shards.redis import prefetch_client
from leveret.job_service.shards.redis.keys import acked_key
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.sql.loader import (
    ACK_LEFT_MS,
)
from leveret.testing import ManualClock
from tests.jobs.shards.acks import (
    OVER_MS,
    acked_and_taken,
    announce,
    is_up_again,
    is_written,
    job_count,
    look,
    quick_ack,
    redis_behind_a_line,
    taken,
)
from tests.jobs.shards.deployment import (
    LEASE_MS,
    QUICK,
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    abandon,
    drain,
    eventually,
    handles,
    new,
    topic_on,
)
from tools.services import Postgres, RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


def test_an_ack_needs_no_transaction(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 2, more=1)
            before = await deployment.last_statement()
            await quick_ack(store, jobs)
            assert await deployment.last_statement() == before
            assert await job_count(deployment) == 3
            (stats,) = await store.stats("n")
            assert (stats.ready, stats.leased, stats.acked, stats.handed_out) == (1, 0, 2, 2)
            assert await job_count(deployment) == 1
            assert not store._notes.topics

    asyncio.run(main())


def test_an_ack_takes_the_next_job_along(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 1, more=2)
            before = await deployment.last_statement()
            for payload in (b"1", b"2"):
                both = await acked_and_taken(store, handles(jobs))
                assert both is not None
                outcomes, jobs = both
                assert outcomes == [Outcome.DONE]
                assert [job.payload for job in jobs] == [payload]
            assert await deployment.last_statement() == before
            assert (await store.stats("n"))[0].acked == 2
            # The list is empty: an ack and a dequeue are two calls.
            assert await acked_and_taken(store, handles(jobs)) is None
            await quick_ack(store, jobs)
            assert await drain(store, "t") == []

    asyncio.run(main())


def test_nothing_is_changed_if_the_shard_must_be_asked(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            (job,) = await taken(store, 1, more=1)
            wrong = [Handle(job.id, job.token - 1), Handle(job.id, job.token)]
            assert await acked_and_taken(store, wrong) is None
            assert await job_count(deployment) == 2
            assert not store._notes.topics
            assert await store.ack(*TOPIC, wrong) == [Outcome.UNKNOWN, Outcome.DONE]
            assert [job.payload for job in await store.dequeue(*TOPIC, 1, LEASE_MS, 0)] == [b"1"]

    asyncio.run(main())


def test_any_node_acks_and_leaves_the_list_to_the_node_that_filled_it(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            jobs = await taken(first, 1, more=1)
            second._prefetcher._listed.add(TOPIC)  # as if the node had looked at the lists
            await announce(second)
            await quick_ack(second, jobs)
            for shard in second._shards:
                await second._prefetcher._tidy_all(shard)
            assert (await first._redis.waiting(TOPIC))[1] == 1
            assert await job_count(deployment) == 1
            assert (await first._redis._redis.keys("mqueue:acked:*")) == []

    asyncio.run(main())


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("is_noted", [False, True])
def test_what_is_acked_is_unknown_to_every_other_call(
    deployment: Deployment, is_other: bool, is_noted: bool
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            (job,) = jobs = await taken(first, 1)
            await quick_ack(first, jobs)
            if is_noted:
                await first._notes.write(TOPIC)
            store = second if is_other else first
            store._prefetcher._listed.add(TOPIC)  # as if the node had looked at the lists
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.UNKNOWN]
            assert await store.ack(*TOPIC, [Handle(job.id)]) == [Outcome.UNKNOWN]
            assert await store.ack(*TOPIC, [Handle(job.id, 1)]) == [Outcome.UNKNOWN]
            for is_dead in (False, True):
                nacked = await store.nack(*TOPIC, handles(jobs), "late", 0, is_dead)
                assert nacked == [Outcome.UNKNOWN]
            assert await store.extend(*TOPIC, handles(jobs), LEASE_MS) == [(Outcome.UNKNOWN, 0)]
            assert await store.cancel(*TOPIC, [job.id]) == [Outcome.UNKNOWN]
            assert await store.deliver_now(*TOPIC, [job.id]) == [Outcome.UNKNOWN]
            assert await store.find(*TOPIC, job.id) is None
            assert await drain(store, "t") == []
            assert (await first.stats("n"))[0].acked == 1

    asyncio.run(main())


def test_a_node_knows_what_it_has_acked_without_redis(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 1)
            await quick_ack(store, jobs)
            redis_server.wipe()
            for is_dead in (False, True):
                nacked = await store.nack(*TOPIC, handles(jobs), "late", 0, is_dead)
                assert nacked == [Outcome.UNKNOWN]
            assert await store.extend(*TOPIC, handles(jobs), LEASE_MS) == [(Outcome.UNKNOWN, 0)]
            assert await drain(store, "t") == []

    asyncio.run(main())


@pytest.mark.parametrize("state", ["ready", "leased", "scheduled"])
def test_a_list_does_not_show_what_is_acked(deployment: Deployment, state: str) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await quick_ack(first, await taken(first, 1))
            assert await second.list_jobs(*TOPIC, state, 10, "") == ([], "")

    asyncio.run(main())


def test_an_ack_with_another_token_is_stale(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            (job,) = await taken(store, 1)
            for token in (job.token - 1, job.token + 1):
                assert await store.ack(*TOPIC, [Handle(job.id, token)]) == [Outcome.STALE]
            assert await store.ack(*TOPIC, [Handle(job.id, job.token)]) == [Outcome.DONE]

    asyncio.run(main())


@pytest.mark.parametrize("is_other", [False, True])
def test_after_another_settlement_the_shard_is_asked(
    deployment: Deployment, is_other: bool
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            extended, nacked, buried = handles(await taken(first, 3))
            store = second if is_other else first
            ((outcome, _),) = await store.extend(*TOPIC, [extended], LEASE_MS)
            assert outcome == Outcome.DONE
            assert await store.nack(*TOPIC, [nacked], "no", 3_600_000) == [Outcome.DONE]
            assert await store.nack(*TOPIC, [buried], "no", None, True) == [Outcome.DONE]
            acks = await first.ack(*TOPIC, [extended, nacked, buried])
            assert acks == [Outcome.DONE, Outcome.STALE, Outcome.UNKNOWN]
            assert not first._notes.topics
            assert await job_count(deployment) == 2

    asyncio.run(main())


def test_an_ack_shortly_before_the_end_of_the_lease_asks_the_shard(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            first, second, third = await taken(store, 3)
            clock.advance((LEASE_MS - ACK_LEFT_MS) / 1000)
            await quick_ack(store, [first])
            await store._notes.write(TOPIC)
            clock.advance(0.001)
            assert await store.ack(*TOPIC, handles([second])) == [Outcome.DONE]
            assert not store._notes.topics
            clock.advance(OVER_MS / 1000)
            assert await store.ack(*TOPIC, handles([third])) == [Outcome.STALE]
            assert await drain(store, "t") == [third.payload]

    asyncio.run(main())


def test_an_ack_by_the_policy_always_asks_the_shard(deployment: Deployment) -> None:
    always = msgspec.structs.replace(QUIET, sync="always")

    async def main() -> None:
        async with deployment.node(settings=always) as store:
            jobs = await taken(store, 1, more=1)
            assert await acked_and_taken(store, handles(jobs)) is None
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE]
            assert await job_count(deployment) == 1

    asyncio.run(main())


def test_while_notes_are_not_written_acks_ask_the_shard(deployment: Deployment) -> None:
    at_once = msgspec.structs.replace(QUIET, unwritten_s=0.0)

    async def main() -> None:
        async with deployment.node(settings=at_once) as store:
            first, second, third = await taken(store, 3)
            await quick_ack(store, [first])
            assert await store.ack(*TOPIC, handles([second])) == [Outcome.DONE]
            assert await job_count(deployment) == 2
            await store._notes.write(TOPIC)
            await quick_ack(store, [third])
            assert await job_count(deployment) == 1

    asyncio.run(main())


def test_many_notes_are_written_at_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note_writer, "WRITTEN_AT", 3)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:  # whose next look is far away
            jobs = await taken(store, 3)
            await quick_ack(store, jobs[:2])
            await quick_ack(store, jobs[2:])
            await eventually(lambda: is_written(deployment))
            await eventually(lambda: not store._notes.topics)

    asyncio.run(main())


def test_a_node_keeps_a_bounded_number_of_acks(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note_writer, "KEPT_MAX", 1)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            first, second = await taken(store, 2)
            await quick_ack(store, [first])
            assert await store.ack(*TOPIC, handles([second])) == [Outcome.DONE]
            assert await job_count(deployment) == 1

    asyncio.run(main())


def test_a_node_that_stops_writes_its_notes(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await quick_ack(store, await taken(store, 2))
        assert await deployment.is_empty("items")

    asyncio.run(main())


def test_the_acks_of_a_killed_node_are_written_by_another(deployment: Deployment) -> None:
    async def main() -> None:
        killed = await deployment.started("a", settings=QUIET)
        await quick_ack(killed, await taken(killed, 2))
        await abandon(killed)
        async with deployment.node("b"):
            await eventually(lambda: is_written(deployment))

    asyncio.run(main())


@pytest.mark.parametrize("is_by_dequeue", [False, True])
def test_a_lease_that_ran_out_is_taken_back_after_the_notes_are_written(
    deployment: Deployment, is_by_dequeue: bool
) -> None:
    clock = ManualClock()
    at_once = msgspec.structs.replace(QUIET, silent_s=0.0)  # the killed node is silent

    async def main() -> None:
        async with deployment.node("b", clock, at_once) as store:  # writes no notes by itself
            killed = await deployment.started("a", clock, QUIET)
            acked, lost = await taken(killed, 2)
            await quick_ack(killed, [acked])
            await abandon(killed)
            clock.advance(OVER_MS / 1000)
            assert await store.dequeue(*TOPIC, 10, LEASE_MS, 0) == []
            await look(store)
            if not is_by_dequeue:
                await look(store)
            (job,) = await store.dequeue(*TOPIC, 10, LEASE_MS, 0)
            assert job.id == lost.id
            assert await store.find(*TOPIC, acked.id) is None

    asyncio.run(main())


def test_a_lease_stays_while_notes_cannot_be_read_behind_others(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    at_once = msgspec.structs.replace(QUIET, silent_s=0.0)
    for module in (note_writer, prefetch_client):
        monkeypatch.setattr(module, "NOTES_MAX", 2)

    async def refuse(*_: object) -> None:
        raise JobsUnavailableError("Redis is busy")

    async def main() -> None:
        async with deployment.node("b", clock, at_once) as store:
            killed = await deployment.started("a", clock, QUIET)
            jobs = await taken(killed, 5)
            await quick_ack(killed, jobs[:4])
            await abandon(killed)
            clock.advance(OVER_MS / 1000)
            with monkeypatch.context() as patches:
                patches.setattr(store._redis, "remove_noted", refuse)
                for _ in range(3):
                    await look(store)
                assert await deployment.is_empty("ack_nodes")
                with pytest.raises(JobsUnavailableError):
                    await store.dequeue(*TOPIC, 10, LEASE_MS, 0)
            assert await drain(store, "t") == [jobs[4].payload]

    asyncio.run(main())


def test_a_redis_that_loses_its_memory_loses_no_ack(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            jobs = await taken(store, 2)
            await quick_ack(store, jobs[:1])
            redis_server.wipe()
            assert await store.ack(*TOPIC, handles(jobs[1:])) == [Outcome.DONE]
            clock.advance(OVER_MS / 1000)
            assert await drain(store, "t") == []
            assert await deployment.is_empty("items")

    asyncio.run(main())


def test_acks_are_written_while_redis_is_down(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    place = deployment.at(redis_url=own_redis.url)

    async def main() -> None:
        async with place.node(settings=QUICK) as store:
            jobs = await taken(store, 2)
            assert await store.ack(*TOPIC, handles(jobs[:1])) == [Outcome.DONE]
            own_redis.end()
            assert await store.ack(*TOPIC, handles(jobs[1:])) == [Outcome.DONE]
            await eventually(lambda: is_written(deployment))
            own_redis.start()

    asyncio.run(main())


def test_a_silent_redis_makes_no_error_of_an_ack(deployment: Deployment) -> None:
    short = msgspec.structs.replace(QUIET, deadline_s=1.5)

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            async with place.node(settings=short) as store:
                jobs = await taken(store, 2)
                line.stall()
                assert await store.ack(*TOPIC, handles(jobs[:1])) == [Outcome.DONE]
                assert await store.ack(*TOPIC, handles(jobs[1:])) == [Outcome.DONE]
                assert await deployment.is_empty("items")
                line.flow()

    asyncio.run(main())


def test_a_silent_redis_makes_no_error_of_an_ack_that_takes_the_next_job(
    deployment: Deployment,
) -> None:
    short = msgspec.structs.replace(QUIET, deadline_s=1.5)

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            async with place.node(settings=short) as store:
                jobs = await taken(store, 1, more=1)
                await store.enqueue([new(payload=b"more")])
                await store._updater.flush(TOPIC)
                line.stall()
                both = await acked_and_taken(store, handles(jobs))
                assert both is not None
                assert both.outcomes == [Outcome.DONE]
                assert [job.payload for job in both.jobs] == [b"more"]
                line.flow()

    asyncio.run(main())


def test_an_ack_without_its_script_changes_nothing_and_is_done_later(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 1, more=1)
            await store._redis._redis.script_flush()
            assert await acked_and_taken(store, handles(jobs)) is None
            await quick_ack(store, jobs)
            assert await acked_and_taken(store, []) is not None

    asyncio.run(main())


def test_an_ack_that_takes_some_listed_jobs_takes_others_of_the_table(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 1, more=1)
            await store.enqueue([new(payload=b"more")])
            await store._updater.flush(TOPIC)
            both = await acked_and_taken(store, handles(jobs), limit=2)
            assert both is not None
            assert both.outcomes == [Outcome.DONE]
            assert [job.payload for job in both.jobs] == [b"1", b"more"]

    asyncio.run(main())


def test_a_shard_that_was_away_until_the_lease_has_ended_delivers_no_acked_job(
    apart: Deployment, other_postgres: Postgres
) -> None:
    clock, there = ManualClock(), topic_on(1)

    async def main() -> None:
        async with apart.node(clock=clock, settings=QUIET) as store:
            jobs = await taken(store, 3, there)
            other_postgres.end(signal.SIGKILL)
            try:
                await quick_ack(store, jobs[:2], there)  # nobody has noticed yet
                clock.advance(OVER_MS / 1000)
            finally:
                other_postgres.start()
            await eventually(lambda: is_up_again(store._shards[1]))
            assert await drain(store, there) == [jobs[2].payload]
            assert await apart.is_empty("items")

    asyncio.run(main())


@pytest.mark.parametrize("has_others", [False, True])
def test_a_node_notes_its_acks_again_while_the_shard_is_away(
    apart: Deployment,
    other_postgres: Postgres,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    has_others: bool,
) -> None:
    """Redis loses its memory meanwhile, and another node is the first that reaches the shard."""
    for module in (note_writer, prefetch_client):
        monkeypatch.setattr(module, "NOTES_MAX", 3)
    clock, there = ManualClock(), topic_on(1)
    at_once = msgspec.structs.replace(QUIET, unwritten_s=0.0)

    async def main() -> None:
        async with apart.two_nodes(clock, at_once) as (first, second):
            jobs = await taken(first, 2, there)
            other_postgres.end(signal.SIGKILL)
            try:
                await quick_ack(first, jobs, there)  # nobody has noticed yet
                redis_server.wipe()
                if has_others:  # as of nodes that are gone
                    await second._redis.note_acks(("n", there), [b"1 1", b"2 1", b"3 1"])
                for _ in range(2):
                    await first._notes.save_late(first._shards[1])
                key = acked_key("n", there)
                assert await second._redis._redis.llen(key) == (5 if has_others else 2)
                clock.advance(OVER_MS / 1000)
            finally:
                other_postgres.start()
            await eventually(lambda: is_up_again(second._shards[1]))
            assert await drain(second, there) == []
            assert await apart.is_empty("items")
            await eventually(lambda: is_up_again(first._shards[1]))

    asyncio.run(main())


def test_late_notes_do_not_wait_for_redis(deployment: Deployment) -> None:
    at_once = msgspec.structs.replace(QUIET, unwritten_s=0.0)

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            async with place.node(settings=at_once) as store:
                await quick_ack(store, await taken(store, 1))
                line.stall()  # every question to Redis would wait for a minute
                shard = store._routes.shard_of(TOPIC)
                async with asyncio.timeout(WITHIN_S / 2):
                    await store._notes.save_late(shard)
                assert await deployment.is_empty("items")
                line.flow()

    asyncio.run(main())


def test_a_moved_topic_keeps_its_acks(deployment: Deployment) -> None:
    topic = topic_on(0)

    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            jobs = await taken(first, 2, topic, more=1)
            await quick_ack(first, jobs[:1], topic)
            async with open_mover(deployment.dsns) as moving:
                await moving.move(("n", topic), 1)
            assert await second.find("n", topic, jobs[0].id) is None
            assert await first.ack("n", topic, handles(jobs[1:])) == [Outcome.DONE]
            assert await drain(second, topic) == [b"2"]
            assert await deployment.is_empty("items")

    asyncio.run(main())


def test_a_topic_that_was_frozen_until_the_lease_has_ended_keeps_its_acks(
    deployment: Deployment,
) -> None:
    clock, topic = ManualClock(), topic_on(0)
    short = msgspec.structs.replace(QUIET, deadline_s=1.5)

    async def main() -> None:
        async with deployment.node(clock=clock, settings=short) as store:
            acked, lost = await taken(store, 2, topic)
            await quick_ack(store, [acked], topic)
            async with open_mover(deployment.dsns) as moving:
                await moving.arrive(("n", topic), 1)
                await moving.freeze(("n", topic))
                clock.advance(OVER_MS / 1000)
                _, left = await store._notes.write_for_wake(store._shards[0])
                assert left == [("n", topic)]
                await moving.carry(("n", topic), 1)
                await moving.verify(("n", topic), 1)
                await moving.switch(("n", topic), 1)
                await moving.thaw(("n", topic))
            # The node still looks for the topic on its old shard.
            await store._ticker.handle_due(store._shards[1])
            assert await deployment.rows("SELECT FROM items WHERE status = 'ready'") == []
            (job,) = await store.dequeue("n", topic, 10, LEASE_MS, 0)
            assert job.id == lost.id

    asyncio.run(main())


def test_an_ack_frees_the_lease_of_a_topic_that_was_limited_meanwhile(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            jobs = await taken(first, 1, more=1)
            await first.set_settings(*TOPIC, TopicSettings(concurrency_max=1))
            assert await second.dequeue(*TOPIC, 1, LEASE_MS, 0) == []
            waiting = asyncio.get_running_loop().create_task(
                second.dequeue(*TOPIC, 1, LEASE_MS, 600_000)
            )
            await eventually(lambda: second._signals.is_awaited(TOPIC))
            await quick_ack(first, jobs)
            await first._notes.write(TOPIC)
            assert len(await waiting) == 1

    asyncio.run(main())


def test_notes_of_an_earlier_version_are_written(deployment: Deployment) -> None:
    """A node of an earlier version notes hand-outs, but no leases: the shard is asked for acks."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs: list[Any] = await taken(store, 1)
            for key in await store._redis._redis.keys("mqueue:leases:*"):
                await store._redis._redis.delete(key)
            await store._notes.write(TOPIC)
            (row,) = await deployment.rows("SELECT status FROM items")
            assert row["status"] == "processing"
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE]
            assert not store._notes.topics
            assert await deployment.is_empty("items")

    asyncio.run(main())
