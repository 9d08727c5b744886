"""Nodes whose clocks are wrong: shards judge leases and due times by their own clock."""

import asyncio
import time

import pytest
from msgspec import structs

from leveret.clock import Clock
from leveret.errors import JobsUnavailableError
from leveret.job_model import Handle, Outcome, Schedule
from tests.jobs.shards.deployment import QUICK, Deployment, eventually, new, refuses, topic_on

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

HOUR_S = 3600.0


def clock_off_by(seconds: float) -> Clock:
    """The clock of a node that is ahead of the shards, or behind them."""
    return Clock(lambda: time.time_ns() + round(seconds * 1e9))


def test_a_node_that_is_ahead_does_not_hand_out_leased_jobs_again(deployment: Deployment) -> None:
    async def main() -> None:
        async with (
            deployment.node("a") as right,
            deployment.node("b", clock_off_by(40)) as ahead,
        ):
            await right.enqueue([new() for _ in range(20)])
            jobs = await right.dequeue("n", "t", 20, 30_000, 0)
            assert len(jobs) == 20
            assert await ahead.dequeue("n", "t", 20, 30_000, 0) == []
            await ahead._ticker.handle_due(ahead._routes.shard_of(("n", "t")))
            handles = [Handle(job.id, job.token) for job in jobs]
            assert await ahead.ack("n", "t", handles) == [Outcome.DONE] * 20

    asyncio.run(main())


@pytest.mark.parametrize("off_s", [-40, 40])
def test_jobs_of_a_node_with_a_wrong_clock_are_ready_at_once(
    deployment: Deployment, off_s: float
) -> None:
    async def main() -> None:
        async with (
            deployment.node("a") as right,
            deployment.node("b", clock_off_by(off_s)) as wrong,
        ):
            (id,) = (await wrong.enqueue([new()])).ids
            found = await wrong.find("n", "t", id)
            assert found is not None and found.state == "ready"
            assert [job.id for job in await right.dequeue("n", "t", 1, None, 0)] == [id]

    asyncio.run(main())


@pytest.mark.parametrize("off_s", [-50, 50])
@pytest.mark.parametrize(("due_in_s", "state"), [(45, "scheduled"), (-45, "ready")])
def test_a_job_that_a_node_with_a_wrong_clock_took_is_due_at_its_time(
    deployment: Deployment, off_s: float, due_in_s: int, state: str
) -> None:
    async def main() -> None:
        async with deployment.node(clock=clock_off_by(off_s)) as wrong:
            due_ms = Clock().now_ms() + due_in_s * 1000
            (id,) = (await wrong.enqueue([new(deliver_after_ms=due_ms)])).ids
            found = await wrong.find("n", "t", id)
            assert found is not None and found.state == state
            assert (found.deliver_after_ms == due_ms) == (state == "scheduled")

    asyncio.run(main())


@pytest.mark.parametrize(("off_s", "side"), [(-2 * HOUR_S, "behind"), (2 * HOUR_S, "ahead of")])
def test_a_node_beyond_the_bound_neither_leases_nor_enqueues(
    deployment: Deployment, off_s: float, side: str
) -> None:
    async def main() -> None:
        async with (
            deployment.node("a") as right,
            deployment.node("b", clock_off_by(off_s)) as wrong,
        ):
            await right.enqueue([new(topic_on(1)), new(topic_on(1))])
            leased, _ = await right.dequeue("n", topic_on(1), 2, None, 0)
            for call in (
                wrong.dequeue("n", topic_on(1), 1, None, 0),
                wrong.enqueue([new(topic_on(1))]),
            ):
                reason = await refuses(call, JobsUnavailableError)
                assert "the clock of this node is 7" in reason
                assert f"{side} shard 1" in reason
            handle = [Handle(leased.id, leased.token)]
            assert await wrong.ack("n", topic_on(1), handle) == [Outcome.DONE]
            skew_ms = wrong._redis.health.skew_ms
            assert skew_ms is not None and abs(skew_ms - off_s * 1000) < 30_000

    asyncio.run(main())


def test_a_node_that_was_ahead_once_leaves_no_trace(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("b", clock_off_by(2 * HOUR_S)) as ahead:
            for shard in ahead._shards:
                await ahead._sweeper._renew(shard)
        async with deployment.node("a") as right:
            (id,) = (await right.enqueue([new()])).ids
            assert [job.id for job in await right.dequeue("n", "t", 1, None, 0)] == [id]

    asyncio.run(main())


def test_a_clock_that_is_set_right_again_is_noticed(deployment: Deployment) -> None:
    off_ns = [0]
    clock = Clock(lambda: time.time_ns() + off_ns[0])

    async def main() -> None:
        async with deployment.node("a", clock) as store:
            shard = store._routes.shard_of(("n", "t"))
            off_ns[0] = 90 * 10**9
            await shard.probe()
            refusal = await refuses(store.enqueue([new()]))
            assert "ahead of" in refusal and "a restart of the node" in refusal
            clock._now_ns -= off_ns[0]  # as after three minutes at half speed
            off_ns[0] = 0
            await eventually(lambda: not shard.health.skew_refusal())
            await store.enqueue([new()])

    asyncio.run(main())


def test_a_node_number_is_not_given_on_while_clocks_may_differ(deployment: Deployment) -> None:
    short = structs.replace(QUICK, node_lease_ms=400)

    async def main() -> None:
        async with deployment.node("a", settings=short) as store:
            number = store._id_generator.node_number
            assert number is not None

        async def is_over() -> bool:
            rows = await deployment.rows("SELECT expires_at < now() AS is_so FROM node_ids")
            return all(row["is_so"] for row in rows)

        await eventually(is_over)
        async with deployment.node("b") as other:
            shard = other._shards[0]
            assert not await other._id_generator._record_in(shard, number)

    asyncio.run(main())


def test_a_schedule_of_a_node_that_is_ahead_is_not_later_than_the_next_one(
    deployment: Deployment,
) -> None:
    """While topics move, two shards hold a version each, and the later version is used."""

    async def main() -> None:
        async with deployment.node(clock=clock_off_by(40)) as ahead:
            await ahead.set_schedule(Schedule(name="s", namespace="n", topic="t", cron="@hourly"))
            sql = "SELECT version <= extract(epoch FROM now()) * 1000 AS is_so FROM schedules"
            assert [row["is_so"] for row in await deployment.rows(sql)] == [True]

    asyncio.run(main())
