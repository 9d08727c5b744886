"""Changes of the number of shards while nodes run."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from leveret.errors import ConfigError
from leveret.job_model import Handle, Outcome, Schedule, TopicSettings
from leveret.job_service.shards.resharding.copying_ahead import copy_ranges, split_topic
from leveret.job_service.shards.resharding.topic_mover import CopyDiffersError, open_mover
from leveret.job_service.shards.routing import slot_of
from leveret.job_service.shards.shard import TopicStoppedError
from leveret.pipeline.flows.reshard import Resharded, ReshardProgress, ReshardRequest, plan, reshard
from tests.jobs.shards.databases import migrated
from tests.jobs.shards.deployment import Deployment, abandon, drain, new
from tools.services import Postgres, RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")
Step = Callable[[str, tuple[str, str] | None], None]


@pytest.fixture
def deployment(
    postgres: Postgres, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Deployment]:
    """Three shards, of which two are used: the map says so."""
    with migrated(postgres, 3) as dsns:
        wide = Deployment(redis_server.fresh_url(), dsns, tmp_path)

        async def begin() -> None:
            async with open_mover(dsns):
                await wide.rows("INSERT INTO map_state VALUES (2)", shard=0)

        asyncio.run(begin())
        yield wide


def fresh_topic(old: int, before: int, new_: int, after: int, number: int = 0) -> str:
    """A topic that is on shard `old` of so many before, and on `new_` after."""
    slots = {name: slot_of(("n", name)) for name in (f"topic{n}" for n in range(500))}
    return [n for n, slot in slots.items() if slot % before == old and slot % after == new_][number]


MOVING = fresh_topic(0, 2, 2, 3)


def silent(progress: ReshardProgress) -> None:
    pass


def nothing(step: str, topic: tuple[str, str] | None) -> None:
    pass


async def resharded(
    deployment: Deployment, to: int, on_step: Step | None = None, **more: Any
) -> Resharded:
    """Run it beside the loop of the nodes, as another process would."""
    asked = ReshardRequest(tuple(deployment.dsns), to, **{"ahead_from": 20, **more})
    return await asyncio.to_thread(reshard, lambda: copy_ranges, asked, silent, on_step or nothing)


def apart(work: Any) -> None:
    """Run a coroutine to its end, from within a loop."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()


async def shards_of(deployment: Deployment, topic: str) -> list[int]:
    """The shards that have rows of a topic."""
    sql = "SELECT FROM items WHERE topic = $1"
    return [n for n in range(len(deployment.dsns)) if await deployment.rows(sql, topic, shard=n)]


def test_everything_that_belongs_to_a_topic_moves_with_it(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.set_settings("n", MOVING, TopicSettings(retries_max=0, backoff_ms=0))
            enqueued = await store.enqueue(
                [new(MOVING, b"%d" % n, fair_key=f"k{n % 2}") for n in range(30)]
                + [new(MOVING, b"later", deliver_after_ms=2**42, idempotency_key="once")]
            )
            ids = enqueued.ids
            dead, leased = await store.dequeue("n", MOVING, 2, 60_000, 1000)
            await store.nack("n", MOVING, [Handle(dead.id, dead.token)], "broken", None)
            schedule = Schedule(name="y", namespace="n", topic=MOVING, cron="0 0 1 1 *")
            await store.set_schedule(schedule)
            turns = await deployment.rows("SELECT * FROM turns", shard=0)
            before = await deployment.rows("SELECT * FROM items ORDER BY id", shard=0)

            done = await resharded(deployment, 3)

            (moved,) = [each for each in done.topics if each.topic == MOVING]
            assert (moved.source, moved.target, moved.rows["items"]) == (0, 2, 31)
            assert moved.rows["keys"] == moved.rows["schedules"] == 1
            assert done.copied_ahead == 31 and moved.frozen_ms > 0
            assert await deployment.rows("SELECT * FROM items ORDER BY id", shard=2) == before
            assert await deployment.rows("SELECT * FROM turns", shard=2) == turns != []
            for table in ("items", "keys", "turns", "rounds", "schedules", "topics"):
                assert not await deployment.rows(f"SELECT FROM {table}", shard=0), table
            marks = await deployment.rows("SELECT id FROM flush_marks", shard=2)
            assert {row["id"] for row in marks} == set(ids)

            for late in (
                "leveret_serve('n', $1, '{0}', '{7}')",
                "leveret_undo('{1}', '{1}', '{n}', ARRAY[$1])",
            ):
                with pytest.raises(TopicStoppedError):
                    await store._shards[0].fetch(f"SELECT {late}", MOVING)
            assert (await store.settings("n", MOVING)).retries_max == 0
            (found,) = await store.dead("n", MOVING, 0, 10)
            assert found.id == dead.id and found.failures[0].error == "broken"
            stale = Handle(leased.id, leased.token - 1)
            assert await store.ack("n", MOVING, [stale]) == [Outcome.STALE]
            own = Handle(leased.id, leased.token)
            assert await store.ack("n", MOVING, [own]) == [Outcome.DONE]
            again = new(MOVING, b"later", deliver_after_ms=2**42, idempotency_key="once")
            assert (await store.enqueue([again])).ids == [ids[-1]]
            assert await store.schedules("n") == [schedule]
            assert len(await drain(store, MOVING)) == 28

    asyncio.run(main())


def test_nodes_agree_on_new_topics_at_every_moment(deployment: Deployment) -> None:
    names = [fresh_topic(0, 2, 2, 3, number) for number in range(8)]
    steps = ["begun", "narrowed", "marked", "counted", "opened", "tidied"]

    async def main() -> None:
        async with deployment.two_nodes() as (first, second):
            loop = asyncio.get_running_loop()

            async def put(name: str) -> None:
                """Both nodes put into a topic that nobody has heard of, and try to flush it."""
                await asyncio.gather(
                    first.enqueue([new(name, b"1")]), second.enqueue([new(name, b"2")])
                )
                await asyncio.gather(first.stats(None), second.stats(None))

            async def take(name: str) -> list[bytes]:
                found: list[bytes] = []
                while len(found) < 2:
                    found += await drain(second, name)
                    await asyncio.sleep(0.01)
                return sorted(found)

            def on_step(step: str, topic: tuple[str, str] | None) -> None:
                if topic is None:
                    work = put(names[steps.index(step)])
                    asyncio.run_coroutine_threadsafe(work, loop).result(20)

            done = await resharded(deployment, 3, on_step)
            assert (done.shards_before, done.shards) == (2, 3)
            async with asyncio.timeout(60):
                for name in names[: len(steps)]:
                    assert await take(name) == [b"1", b"2"]
            last = names[7]
            await asyncio.gather(
                first.enqueue([new(last, b"1")]), second.enqueue([new(last, b"2")])
            )
            await first.stats(None)
            assert await shards_of(deployment, last) == [2]
        assert not await deployment.rows("SELECT FROM shard_map", shard=0)

    asyncio.run(main())


def test_a_planted_difference_is_found_and_nothing_is_switched(deployment: Deployment) -> None:
    async def spoil() -> None:
        connection = await asyncpg.connect(deployment.dsns[2])
        await connection.execute(
            "UPDATE items SET payload = 'other' WHERE id = (SELECT max(id) FROM items)"
        )
        await connection.close()

    def on_step(step: str, topic: tuple[str, str] | None) -> None:
        if step == "carried":
            apart(spoil())

    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(MOVING, b"%d" % n) for n in range(50)])
            await store.stats(None)
            with pytest.raises(CopyDiffersError, match=r"items of the topic .* differ: 50 rows"):
                await resharded(deployment, 3, on_step)
            assert not await deployment.rows("SELECT FROM shard_map", shard=0)
            assert len(await drain(store, MOVING, 20)) == 50
            await store.enqueue([new(MOVING, b"more")])
            await resharded(deployment, 3)
            assert await drain(store, MOVING) == [b"more"]
            assert await shards_of(deployment, MOVING) == []

    asyncio.run(main())


def test_what_changes_while_a_topic_is_copied_ahead_is_made_right(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(MOVING, b"%d" % n) for n in range(40)])
            await store.stats(None)
            loop = asyncio.get_running_loop()

            async def change() -> None:
                jobs = await store.dequeue("n", MOVING, 10, 60_000, 0)
                handles = [Handle(job.id, job.token) for job in jobs]
                await store.ack("n", MOVING, handles[:5])
                await store.enqueue([new(MOVING, b"new")])
                await store.stats(None)

            def on_step(step: str, topic: tuple[str, str] | None) -> None:
                if step == "copied":
                    asyncio.run_coroutine_threadsafe(change(), loop).result(20)

            done = await resharded(deployment, 3, on_step)
            (moved,) = done.topics
            assert done.copied_ahead == 40 and moved.rows["items"] == 36
            assert 5 + 5 + 1 <= moved.carried < 20  # gone, leased, new: not all of them
            assert len(await drain(store, MOVING)) == 31

    asyncio.run(main())


def test_a_copy_that_comes_too_late_brings_nothing_back(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(MOVING, b"%d" % n) for n in range(5)])
            await store.stats(None)
            async with open_mover(deployment.dsns) as moving:
                topic = "n", MOVING
                await moving.arrive(topic, 2)
                source, target = deployment.dsns[0], deployment.dsns[2]
                parts = await split_topic(moving.databases[0], source, target, topic, 100)
                await moving.move(topic, 2)
                assert len(await drain(store, MOVING)) == 5
                old = parts[0]._replace(source=target, target=source)
                assert await asyncio.to_thread(copy_ranges, [*parts, old], 100, None) == 0
            assert await drain(store, MOVING) == []

    asyncio.run(main())


def test_a_replay_after_the_change_brings_nothing_back(deployment: Deployment) -> None:
    async def main() -> None:
        store = await deployment.started("a")
        await store.enqueue([new(MOVING, b"1")])
        await abandon(store)
        async with deployment.node("b") as other:
            (job,) = await other.dequeue("n", MOVING, 1, None, 30_000)
            await other.ack("n", MOVING, [Handle(job.id)])
            done = await resharded(deployment, 3)
            assert done.topics == []  # nothing is left of it but its mark
            assert len(await deployment.rows("SELECT FROM flush_marks", shard=2)) == 1
            assert await other.dequeue("n", MOVING, 1, None, 0) == []  # and learns of the change
        gone = deployment.at(dsns=["postgresql://leveret@127.0.0.1:1/none", *deployment.dsns[1:]])
        async with gone.node("a", missing=1) as store:  # cannot ask the shard that had the job
            assert await drain(store, MOVING) == []
        assert not await deployment.rows("SELECT FROM items", shard=2)

    asyncio.run(main())


def test_fewer_shards_and_a_node_that_is_given_only_those(deployment: Deployment) -> None:
    topics = [f"t{n}" for n in range(12)]

    async def main() -> None:
        async with deployment.node() as store:
            await resharded(deployment, 3)
            await store.enqueue([new(topic, b"1") for topic in topics])
            await store.stats(None)
            assert await deployment.rows("SELECT FROM items", shard=2)
            short = deployment.at(dsns=deployment.dsns[:2])
            lacking = short.store("b")
            with pytest.raises(ConfigError, match="was given 2: it lacks shard 2;"):
                await lacking.start()
        done = await resharded(deployment, 2)
        assert done.jobs == sum(slot_of(("n", t)) % 3 != slot_of(("n", t)) % 2 for t in topics)
        for table in ("items", "topics", "keys"):
            assert not await deployment.rows(f"SELECT FROM {table}", shard=2)
        async with deployment.at(dsns=deployment.dsns[:2]).node("b") as store:
            for topic in topics:
                assert await drain(store, topic) == [b"1"]

    asyncio.run(main())


def test_a_node_that_lacks_a_shard_keeps_it_from_beginning(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.at(dsns=deployment.dsns[:2]).node():
            with pytest.raises(ConfigError, match="1 of 1 nodes do not know shard 2"):
                await resharded(deployment, 3, nodes_within_s=0.1)

    asyncio.run(main())


def test_what_cannot_be_right_is_refused(deployment: Deployment) -> None:
    with pytest.raises(ConfigError, match="give all 3 databases"):
        plan(ReshardRequest(tuple(deployment.dsns[:2]), 3))

    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(MOVING)])
            await store.stats(None)
            count, planned = await asyncio.to_thread(
                plan, ReshardRequest(tuple(deployment.dsns), 3)
            )
            assert count == 2
            assert [(p.topic[1], p.shard, p.home, p.jobs, p.bytes) for p in planned] == [
                (MOVING, 0, 2, 1, 1)
            ]
            await resharded(deployment, 3)
        turned = tuple(reversed(deployment.dsns))
        with pytest.raises(ConfigError, match=r"no node has used|given as shard 0 is shard 2"):
            await asyncio.to_thread(plan, ReshardRequest(turned, 3))
        await deployment.rows("UPDATE map_state SET next_shards = 2", shard=0)
        with pytest.raises(ConfigError, match="a change to 2 shards has begun"):
            await resharded(deployment, 1)
        await resharded(deployment, 3)  # back

    asyncio.run(main())
