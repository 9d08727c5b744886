"""Prefetched jobs: handed out by Redis alone, once, in order, under the lease that is promised."""

import asyncio
import signal
from contextlib import closing
from typing import Any

import msgspec
import pytest
import redis

from leveret.job_model import Handle, Outcome, TopicSettings
from leveret.job_service.shards import ShardsStore
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.sql.loader import PREFETCH_MARGIN_MS, PREFETCH_OFFERED_MS
from leveret.job_service.shards.topic_name import TopicName
from leveret.testing import ManualClock
from tests.jobs.shards.deployment import (
    LEASE_MS,
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    abandon,
    begin_to_wait,
    drain,
    eventually,
    handles,
    is_whole,
    new,
    topic_on,
)
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

HIDDEN_MS = PREFETCH_OFFERED_MS + PREFETCH_MARGIN_MS  # by which the lease of a row is longer


async def prefetched(store: ShardsStore, *priorities: int, topic: str = "t") -> None:
    """Enqueue a job of each priority, with it as the payload, and prefetch them."""
    await store.enqueue([new(topic, b"%d" % number, priority=number) for number in priorities])
    await store._updater.flush(("n", topic))
    await store._prefetcher.prefetch(("n", topic), LEASE_MS)
    assert (await store._redis.waiting(("n", topic)))[1] == len(priorities)


async def take(store: ShardsStore, limit: int = 1) -> list[Any]:
    return await store.dequeue(*TOPIC, limit, LEASE_MS, 0)


async def statuses(deployment: Deployment) -> list[str]:
    return [row["status"] for row in await deployment.rows("SELECT * FROM items ORDER BY priority")]


@pytest.mark.parametrize("ends", ["before the second look", "at the second look"])
def test_a_dequeue_that_does_not_wait_gets_a_job_that_is_being_taken_back(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The job is off the list, and not ready yet, while the dequeue looks for it."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1)
            prefetcher, redis_client = store._prefetcher, store._redis
            is_off_the_list, may_end = asyncio.Event(), asyncio.Event()
            make_ready, waiting, take_back = (
                prefetcher._make_ready,
                redis_client.waiting,
                prefetcher.take_back,
            )

            async def make_ready_later(*arguments: Any) -> None:
                is_off_the_list.set()
                await may_end.wait()
                await make_ready(*arguments)

            async def wait_for_the_end(*arguments: Any, **more: Any) -> Any:
                may_end.set()
                await taking_back
                return await waiting(*arguments, **more)

            async def let_it_end(topic: TopicName) -> None:
                may_end.set()
                await take_back(topic)

            monkeypatch.setattr(prefetcher, "_make_ready", make_ready_later)
            taking_back = asyncio.get_running_loop().create_task(take_back(TOPIC))
            await is_off_the_list.wait()
            if ends == "before the second look":
                monkeypatch.setattr(redis_client, "waiting", wait_for_the_end)
            else:
                monkeypatch.setattr(prefetcher, "take_back", let_it_end)
            found = await take(store)
            may_end.set()
            await taking_back
            assert [job.payload for job in found] == [b"1"]
            assert await store.ack(*TOPIC, handles(found)) == [Outcome.DONE]

    asyncio.run(main())


def test_a_prefetched_job_is_handed_out_without_the_shard(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 3, 1, 2)
            (stats,) = await store.stats("n")
            assert (stats.ready, stats.leased) == (3, 0)
            before = await deployment.last_statement()
            jobs = await take(store, 2)
            assert await deployment.last_statement() == before
            assert [(job.payload, job.attempt) for job in jobs] == [(b"1", 1), (b"2", 1)]
            (stats,) = await store.stats("n")
            assert (stats.ready, stats.leased, stats.handed_out) == (1, 2, 2)
            assert await statuses(deployment) == ["processing", "processing", "leased"]
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE] * 2
            assert await drain(store, "t") == [b"3"]
            assert await store._redis.prefetched_topics() in ([], [TOPIC])

    asyncio.run(main())


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_handed_out_job_is_settled_by_its_token(deployment: Deployment, is_noted: bool) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1, 2, 3, 4)
            jobs = handles(await take(store, 4))
            if is_noted:
                await store._notes.write(TOPIC)
            wrong = [Handle(handle.id, (handle.token or 0) + 1) for handle in jobs]
            assert await store.ack(*TOPIC, wrong) == [Outcome.STALE] * 4
            assert await store.cancel(*TOPIC, [jobs[0].id]) == [Outcome.STALE]
            ((extended, _),) = await store.extend(*TOPIC, jobs[:1], LEASE_MS)
            assert extended == Outcome.DONE
            assert await store.nack(*TOPIC, jobs[1:2], "later", 3_600_000) == [Outcome.DONE]
            assert await store.nack(*TOPIC, jobs[2:3], "no", None, True) == [Outcome.DONE]
            assert await store.ack(*TOPIC, [Handle(jobs[3].id)]) == [Outcome.DONE]
            assert await statuses(deployment) == ["processing", "scheduled", "dead"]

    asyncio.run(main())


@pytest.mark.parametrize("is_handed_out", [False, True])
def test_a_lease_that_runs_out_counts_if_the_job_was_handed_out(
    deployment: Deployment, is_handed_out: bool
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            await prefetched(store, 1)
            if is_handed_out:
                (job,) = await take(store)
                assert job.lease_expires_ms == clock.now_ms() + LEASE_MS
                await store._notes.write(TOPIC)
            else:
                await store._redis.take_back(TOPIC)  # as if Redis had lost the list
            hidden_ms = PREFETCH_MARGIN_MS if is_handed_out else HIDDEN_MS
            clock.advance((LEASE_MS + hidden_ms) / 1000)
            (job,) = await take(store)
            assert job.attempt == 1 + is_handed_out
            found = await store.find(*TOPIC, job.id)
            assert found is not None
            assert len(found.failures) == is_handed_out

    asyncio.run(main())


def test_the_row_has_at_least_the_lease_that_the_worker_is_told(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            await prefetched(store, 1)
            clock.advance((PREFETCH_OFFERED_MS - 1) / 1000)
            jobs = await take(store)
            clock.advance((LEASE_MS - 1) / 1000)
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE]

    asyncio.run(main())


def test_a_job_that_was_listed_for_too_long_is_taken_back(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            await prefetched(store, 1)
            (old,) = await deployment.rows("SELECT token FROM items")
            clock.advance(PREFETCH_OFFERED_MS / 1000)
            (job,) = await take(store)
            assert job.attempt == 1
            assert job.token > old["token"]  # a lease of its own
            assert await statuses(deployment) == ["processing"]

    asyncio.run(main())


def test_a_longer_lease_than_the_listed_one_is_a_direct_lease(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1)
            (job,) = await store.dequeue(*TOPIC, 1, 3_600_000, 0)
            (row,) = await deployment.rows(
                "SELECT lease_expires_at > now() + INTERVAL '59 minutes' AS is_long FROM items"
            )
            assert row["is_long"]
            assert job.attempt == 1

    asyncio.run(main())


def test_a_busy_topic_is_prefetched_and_stays_in_order(deployment: Deployment) -> None:
    # Only the calls of the test list jobs or take them back. On a busy machine, the list would be
    # taken back between two calls otherwise, and later jobs handed out meanwhile.
    busy, clock = msgspec.structs.replace(QUIET, prefetch_from=2), ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=busy) as store:
            await store.enqueue([new(payload=b"%d" % number) for number in range(300)])
            found: list[bytes] = []
            ahead = 0
            while len(found) < 300:
                jobs = await store.dequeue(*TOPIC, 1, None, 1000)
                ahead += (await store._redis.waiting(TOPIC))[1]
                found += [job.payload for job in jobs]
                await store.ack(*TOPIC, handles(jobs))
            assert found == [b"%d" % number for number in range(300)]
            assert ahead > 0

    asyncio.run(main())


def test_a_node_that_looks_at_its_lists_may_list_jobs_of_further_topics(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            topics = [f"t{number}" for number in range(3)]
            for topic in topics:
                await prefetched(store, 1, topic=topic)
            tidy, seen = store._prefetcher._tidy, list[str]()

            async def tidy_while_jobs_are_listed(topic: TopicName) -> None:
                seen.append(topic[1])
                await prefetched(store, 1, topic=f"{topic[1]}-more")
                await tidy(topic)

            monkeypatch.setattr(store._prefetcher, "_tidy", tidy_while_jobs_are_listed)
            for shard in store._shards:
                await store._prefetcher._tidy_all(shard)
            assert set(topics) <= set(seen)

    asyncio.run(main())


def test_a_burst_ends_the_pause_of_a_topic_that_had_few_jobs(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1)
            assert len(await take(store)) == 1
            store._prefetcher._busy.add(TOPIC)
            assert not store._prefetcher._may_refill(TOPIC)
            await store.enqueue([new()])
            await store._updater.flush(TOPIC)
            assert not store._prefetcher._may_refill(TOPIC)
            await store.enqueue([new() for _ in range(QUIET.prefetch_max)])
            await store._updater.flush(TOPIC)
            assert store._prefetcher._may_refill(TOPIC)

    asyncio.run(main())


def test_an_urgent_job_is_not_stuck_behind_prefetched_ones(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await prefetched(first, *[5] * 20)
            await second.enqueue([new(payload=b"urgent", priority=1)])
            await second._updater.flush(TOPIC)
            (job,) = await take(first)
            assert job.payload == b"urgent"
            assert len(await drain(first, "t")) == 20

    asyncio.run(main())


def test_a_client_gets_its_own_urgent_job_first(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 5, 5)
            await store.enqueue([new(payload=b"urgent", priority=1)])
            assert [job.payload for job in await take(store)] == [b"urgent"]

    asyncio.run(main())


def test_a_more_urgent_batch_replaces_the_list(deployment: Deployment) -> None:
    """The urgent job became ready while the others were on their way to the list."""

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 5, 5)
            await deployment.rows(
                "UPDATE items SET status = 'ready', priority = 1, attempts = 0"
                " WHERE id = (SELECT max(id) FROM items)"
            )
            await store._prefetcher.prefetch(TOPIC, LEASE_MS)
            assert [job.priority for job in await take(store)] == [1]

    asyncio.run(main())


def test_another_node_gets_what_one_has_listed(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await prefetched(first, 1, 2)
            (mine,) = await take(first)
            (other,) = await take(second, 5)
            assert (mine.payload, other.payload) == (b"1", b"2")
            assert await take(first) == []
            assert await second.ack(*TOPIC, handles([mine, other])) == [Outcome.DONE] * 2

    asyncio.run(main())


def test_a_waiting_dequeue_of_another_node_learns_of_jobs_that_are_listed_late(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked after the jobs were leased ahead, and before they were on the list."""

    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await first.enqueue([new(), new()])
            await first._updater.flush(TOPIC)
            is_leased, may_list = asyncio.Event(), asyncio.Event()
            list_prefetched = first._redis.list_prefetched

            async def list_late(*arguments: Any) -> tuple[bool, list[bytes]]:
                is_leased.set()
                await may_list.wait()
                return await list_prefetched(*arguments)

            monkeypatch.setattr(first._redis, "list_prefetched", list_late)
            prefetch = first._prefetcher.prefetch(TOPIC, LEASE_MS)
            prefetching = asyncio.get_running_loop().create_task(prefetch)
            await asyncio.wait_for(is_leased.wait(), WITHIN_S)
            waiting = await begin_to_wait(second)
            may_list.set()
            await prefetching
            assert len(await asyncio.wait_for(waiting, WITHIN_S)) == 1

    asyncio.run(main())


def test_a_dequeue_that_waits_without_redis_looks_again_when_redis_is_back(
    deployment: Deployment,
) -> None:
    """It could neither take the listed job back nor mark its topic, so nobody would wake it."""

    async def main() -> None:
        async with deployment.two_nodes(settings=QUIET) as (first, second):
            await prefetched(first, 1)
            second._redis.health.on_down("this node alone is cut off")
            waiting = await begin_to_wait(second)
            await second._redis.probe()
            assert len(await asyncio.wait_for(waiting, WITHIN_S)) == 1

    asyncio.run(main())


def test_what_a_stopped_or_idle_node_has_listed_is_ready_again(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("a", settings=QUIET) as first:
            await prefetched(first, 1, 2)
        assert await statuses(deployment) == ["ready", "ready"]
        async with deployment.node("a") as first:
            before = await deployment.rows("SELECT token FROM items ORDER BY priority")
            await first._prefetcher.prefetch(TOPIC, LEASE_MS)
            after = await deployment.rows("SELECT token FROM items ORDER BY priority")
            assert after[0]["token"] > before[0]["token"]

            async def is_back() -> bool:
                return await statuses(deployment) == ["ready", "ready"]

            await eventually(is_back)

    asyncio.run(main())


def test_the_notes_of_a_killed_node_are_written_by_another(deployment: Deployment) -> None:
    async def main() -> None:
        killed = await deployment.started("a", settings=QUIET)
        await prefetched(killed, 1)
        assert len(await take(killed)) == 1
        await abandon(killed)
        async with deployment.node("b"):

            async def is_noted() -> bool:
                return await statuses(deployment) == ["processing"]

            await eventually(is_noted)

    asyncio.run(main())


def test_a_cancelled_job_is_not_handed_out(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1, 2)
            (first, _), _ = await store.list_jobs(*TOPIC, "ready", 10, "")
            await store._prefetcher.prefetch(TOPIC, LEASE_MS)
            assert await store.cancel(*TOPIC, [first.id]) == [Outcome.DONE]
            assert await drain(store, "t") == [b"2"]

    asyncio.run(main())


def test_topics_with_limits_or_fair_keys_or_long_leases_are_not_prefetched(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1)
            await store.set_settings(*TOPIC, TopicSettings(concurrency_max=1))
            assert await statuses(deployment) == ["ready"]
            await store.set_settings("n", "long", TopicSettings(lease_ms=3_600_000))
            await store.enqueue([new("fair", fair_key="k"), new("long")])
            for topic in ("t", "fair", "long"):
                await store._updater.flush(("n", topic))
                await store._prefetcher.prefetch(("n", topic))
            assert set(await statuses(deployment)) == {"ready"}

    asyncio.run(main())


def test_prefetched_jobs_come_back_when_redis_is_wiped(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            await prefetched(store, 1, 2, 3)
            redis_server.wipe()
            assert await take(store, 3) == []
            clock.advance((LEASE_MS + HIDDEN_MS) / 1000)
            assert await drain(store, "t") == [b"1", b"2", b"3"]

    asyncio.run(main())


def test_a_redis_that_comes_back_with_an_old_list_hands_nothing_out_twice(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    place = deployment.at(redis_url=own_redis.url)

    async def main() -> None:
        async with place.node(settings=msgspec.structs.replace(QUIET, probe_s=0.1)) as store:
            await prefetched(store, 1, 2)
            with closing(redis.Redis(port=own_redis.port)) as client:
                client.save()
            jobs = await take(store, 2)
            assert len(jobs) == 2
            own_redis.restart(signal.SIGKILL)
            await eventually(lambda: is_whole(store))
            with closing(redis.Redis(port=own_redis.port)) as client:
                assert client.llen("mqueue:queue:n:t") == 2
            assert await take(store, 2) == []
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE] * 2

    asyncio.run(main())


def test_a_topic_takes_its_prefetched_jobs_along_when_it_moves(deployment: Deployment) -> None:
    topic = "n", topic_on(0)

    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await prefetched(store, 1, 2, 3, topic=topic[1])
            (first,) = await store.dequeue(*topic, 1, LEASE_MS, 0)
            async with open_mover(deployment.dsns) as moving:
                await moving.move(topic, 1)
            assert await store.ack(*topic, handles([first])) == [Outcome.DONE]
            assert await drain(store, topic[1]) == [b"2", b"3"]

    asyncio.run(main())
