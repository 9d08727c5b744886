"""Announcements of nodes that may have acks which no table has: leases wait for them."""

import asyncio
from typing import Any

import msgspec
import pytest

from leveret.errors import JobsUnavailableError
from leveret.job_model import Outcome
from leveret.job_service.shards import ShardsStore
from leveret.job_service.shards.background import own_acks, silent_nodes
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.testing import ManualClock
from tests.jobs.shards.acks import (
    OVER_MS,
    announce,
    handed_out,
    is_up_again,
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
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


def test_a_lease_stays_while_another_node_may_have_an_ack_of_it(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    """Redis has lost the notes, so nobody but the node that has accepted the ack knows of it."""
    clock = ManualClock()

    async def main() -> None:
        async with deployment.two_nodes(clock, QUIET) as (first, second):
            acked, lost = await taken(first, 2)
            await quick_ack(first, [acked])
            redis_server.wipe()
            clock.advance(OVER_MS / 1000)
            for _ in range(2):
                await look(second)
                assert await second.dequeue(*TOPIC, 10, LEASE_MS, 0) == []
            await first._notes.write(TOPIC)
            assert await drain(second, "t") == [lost.payload]
            assert await deployment.is_empty("items")

    asyncio.run(main())


def test_a_lease_stays_while_redis_has_not_answered_an_ack_of_it(deployment: Deployment) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            async with (
                place.node("a", clock, QUIET) as first,
                deployment.node("b", clock, QUIET) as second,
            ):
                acked, lost = await taken(first, 2)
                line.stall()
                asking = asyncio.get_running_loop().create_task(first.ack(*TOPIC, handles([acked])))
                await eventually(lambda: not first._notes._own[TOPIC].is_idle)
                clock.advance(OVER_MS / 1000)
                await first._notes._write_own(TOPIC, first._notes._own[TOPIC])
                assert await second.dequeue(*TOPIC, 10, LEASE_MS, 0) == []
                line.flow()
                assert await asking == [Outcome.DONE]
                await first._notes.write(TOPIC)
                assert await drain(second, "t") == [lost.payload]

    asyncio.run(main())


def test_acks_announce_the_node_and_a_rest_ends_the_announcement(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_acks, "LINGER_S", 3600.0)
    short = msgspec.structs.replace(QUICK, announced_s=0.5)

    async def is_withdrawn() -> bool:
        return await deployment.is_empty("ack_nodes")

    async def main() -> None:
        async with deployment.node(settings=short) as store:
            jobs = await handed_out(store, 1)
            assert await is_withdrawn()
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE]
            assert not store._notes.topics

            async def is_announced_by_acks() -> bool:
                # An ack that finds the shard unprobed for too long asks the shard and no more. So
                # does the ack of a topic without prefetched jobs.
                await store.ack(*TOPIC, handles(await handed_out(store, 1, more=1)))
                return not await is_withdrawn()

            await eventually(is_announced_by_acks)
            monkeypatch.setattr(own_acks, "LINGER_S", 0.0)
            await eventually(is_withdrawn)

    asyncio.run(main())


@pytest.mark.parametrize("has_notes", [False, True])
def test_a_node_that_stops_withdraws_its_announcements(
    deployment: Deployment, has_notes: bool
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            jobs = await taken(store, 1)
            if has_notes:
                await quick_ack(store, jobs)
            assert not await deployment.is_empty("ack_nodes")
        assert await deployment.is_empty("ack_nodes")

    asyncio.run(main())


def test_two_calls_may_withdraw_an_announcement_at_the_same_time(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await announce(store)
            store._notes.is_stopping = True
            await asyncio.gather(*(store._notes.write(TOPIC) for _ in range(3)))
            assert await deployment.is_empty("ack_nodes")
            assert not store._notes.own_topics

    asyncio.run(main())


def test_an_old_announcement_does_not_count(deployment: Deployment) -> None:
    short = msgspec.structs.replace(QUIET, announced_s=0.0)

    async def main() -> None:
        async with deployment.node(settings=short) as store:
            jobs = await handed_out(store, 1)
            assert await store.ack(*TOPIC, handles(jobs)) == [Outcome.DONE]
            assert await deployment.is_empty("items")

    asyncio.run(main())


async def is_removed(deployment: Deployment, store: ShardsStore) -> bool:
    """Let a node look once; return whether there is no announcement any more."""
    await look(store)
    return await deployment.is_empty("ack_nodes")


async def killed_after_an_announcement(
    deployment: Deployment, clock: ManualClock, topic: str = "t"
) -> None:
    """Kill a node that has handed out a job and is announced. Then the lease runs out."""
    killed = await deployment.started("a", clock, QUIET)
    await taken(killed, 1, topic)
    await abandon(killed)
    clock.advance(OVER_MS / 1000)


def test_a_node_is_silent_only_while_the_shard_answers(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    settings = msgspec.structs.replace(QUIET, silent_s=0.001)
    monkeypatch.setattr(silent_nodes, "GAP_S", WITHIN_S)

    async def main() -> None:
        async with deployment.node("b", clock, settings) as store:
            await killed_after_an_announcement(deployment, clock)
            for _ in range(5):
                store._shards[0].health.failures += 1  # each look comes after an outage
                store._shards[1].health.failures += 1
                assert not await is_removed(deployment, store)
            assert await store.dequeue(*TOPIC, 10, LEASE_MS, 0) == []
            await eventually(lambda: is_removed(deployment, store))
            assert len(await drain(store, "t")) == 1

    asyncio.run(main())


def test_a_node_that_seldom_looks_finds_the_silent_nodes_too(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look of a node with many topics may take longer than counts between two looks."""
    clock = ManualClock()
    settings = msgspec.structs.replace(QUIET, silent_s=0.0025)
    monkeypatch.setattr(silent_nodes, "GAP_S", 0.0005)

    async def main() -> None:
        async with deployment.node("b", clock, settings) as store:
            await killed_after_an_announcement(deployment, clock)
            await eventually(lambda: is_removed(deployment, store))
            assert len(await drain(store, "t")) == 1

    asyncio.run(main())


def test_a_node_that_renews_its_announcement_is_not_silent(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis does not answer an old ack, each renewal has the same time."""
    clock = ManualClock()
    settings = msgspec.structs.replace(QUIET, silent_s=0.001)
    monkeypatch.setattr(silent_nodes, "GAP_S", WITHIN_S)

    async def main() -> None:
        async with deployment.two_nodes(clock, settings) as (first, second):
            await taken(first, 1)
            own = first._notes._own[TOPIC]
            number = own.begin(clock.now_ms())
            clock.advance(OVER_MS / 1000)
            for _ in range(20):
                await first._notes.write(TOPIC)
                assert not await is_removed(deployment, second)
            own.end(number, [], asyncio.get_running_loop().time())

    asyncio.run(main())


def test_the_announcement_of_a_topic_that_is_being_moved_stays(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, topic = ManualClock(), topic_on(0)
    monkeypatch.setattr(silent_nodes, "GAP_S", WITHIN_S)
    at_once = msgspec.structs.replace(QUIET, silent_s=0.0)

    async def main() -> None:
        async with deployment.node("b", clock, at_once) as store:
            await killed_after_an_announcement(deployment, clock, topic)
            async with open_mover(deployment.dsns) as moving:
                await moving.arrive(("n", topic), 1)
                await moving.freeze(("n", topic))
                await moving.carry(("n", topic), 1)
                for _ in range(3):
                    assert not await is_removed(deployment, store)
                await moving.verify(("n", topic), 1)
                await moving.switch(("n", topic), 1)
                await moving.thaw(("n", topic))
            await look(store)
            assert len(await drain(store, topic)) == 1

    asyncio.run(main())


def test_a_silent_node_is_waited_for_while_redis_is_silent_too(deployment: Deployment) -> None:
    clock = ManualClock()
    settings = msgspec.structs.replace(
        QUIET, silent_s=0.0, silent_without_redis_s=3_600.0, deadline_s=1.5
    )

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            async with place.node("b", clock, settings) as store:
                killed = await deployment.started("a", clock, QUIET)
                acked, lost = await taken(killed, 2)
                await quick_ack(killed, [acked])
                await abandon(killed)
                clock.advance(OVER_MS / 1000)
                line.stall()
                for _ in range(3):
                    assert not await is_removed(deployment, store)
                line.flow()
                await eventually(lambda: is_up_again(store._redis))
                await eventually(lambda: is_removed(deployment, store))
                assert await drain(store, "t") == [lost.payload]

    asyncio.run(main())


def test_a_node_that_starts_again_does_not_speak_for_its_last_run(deployment: Deployment) -> None:
    clock = ManualClock()
    short = msgspec.structs.replace(QUIET, deadline_s=1.5, silent_s=0.0)

    async def main() -> None:
        async with redis_behind_a_line(deployment) as (line, place):
            killed = await place.started("a", clock, short)
            acked, lost = await taken(killed, 2)
            await quick_ack(killed, [acked])
            await killed.enqueue([new("u", b"")])  # so the next run goes on with its local log
            await abandon(killed)
            async with place.node("a", clock, short) as store:
                line.stall()
                await announce(store)
                clock.advance(OVER_MS / 1000)
                await store._notes.write(TOPIC)
                assert await store.dequeue(*TOPIC, 10, LEASE_MS, 0) == []
                line.flow()
                await eventually(lambda: is_up_again(store._redis))
                await look(store)
                assert await drain(store, "t") == [lost.payload]

    asyncio.run(main())


def test_an_announcement_whose_answer_was_lost_is_withdrawn(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with deployment.node(clock=clock, settings=QUIET) as store:
            await announce(store)
            clock.advance(1.0)
            ask = store._routes.ask

            async def ask_in_vain(*words: Any) -> Any:
                await ask(*words)
                raise JobsUnavailableError("the answer was lost")

            monkeypatch.setattr(store._routes, "ask", ask_in_vain)
            for is_stopping in (False, True):  # an announcement, then the end of it
                store._notes.is_stopping = is_stopping
                with pytest.raises(JobsUnavailableError):
                    await store._notes.write(TOPIC)
                monkeypatch.setattr(store._routes, "ask", ask_in_vain)
            assert await deployment.is_empty("ack_nodes")
            assert store._notes.own_topics  # the node does not know yet
            monkeypatch.undo()
            await store._notes.write(TOPIC)
            assert not store._notes.own_topics

    asyncio.run(main())


def test_an_announcement_of_long_ago_is_deleted(deployment: Deployment) -> None:
    async def main() -> None:
        await deployment.rows(
            "INSERT INTO ack_nodes VALUES"
            " ('n', 't', gen_random_uuid(), now() - INTERVAL '2 days', 0),"
            " ('n', 'u', gen_random_uuid(), now(), 0)"
        )
        async with deployment.node(settings=QUIET) as store:
            for shard in store._shards:
                await store._sweeper._clean(shard)
        assert {row["topic"] for row in await deployment.rows("SELECT topic FROM ack_nodes")} == {
            "u"
        }

    asyncio.run(main())
