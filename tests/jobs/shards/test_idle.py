"""Nodes at rest cost PostgreSQL no transactions, and still handle in time what becomes due.

No test can pass by a regular look at the shards: the next one is an hour away.
"""

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from msgspec import structs

from leveret.clock import Clock
from leveret.errors import JobsUnavailableError
from leveret.job_model import Schedule, TopicSettings
from leveret.job_service.shards import ShardsStore, keepalive
from leveret.job_service.shards.resharding.topic_mover import open_mover
from leveret.job_service.shards.shard import Shard
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    TOPIC,
    WITHIN_S,
    Deployment,
    abandon,
    begin_to_wait,
    eventually,
    handles,
    new,
    refuses,
)
from tests.proxy import proxy
from tools.services import Postgres

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

HOUR_MS = 3_600_000
SOON_MS = 1_500
RESTING = structs.replace(QUICK, idle_s=3600.0)


class Machine:
    """A machine whose time a test sets wrong."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.clock = Clock(lambda: time.time_ns() + round(self.ahead_s * 1e9))


def shard_of(store: ShardsStore) -> Shard:
    return store._routes.shard_of(TOPIC)


async def until_known(*stores: ShardsStore) -> None:
    """Return when nodes know of a due time of the topic's shard."""
    await eventually(lambda: all(shard_of(each).due.next_s < math.inf for each in stores))


async def until_at_rest(*stores: ShardsStore) -> None:
    """Return when nodes know of no due time, and the last measurement of the clock is too old."""

    def is_at_rest(shard: Shard) -> bool:
        may_rest = shard._may_rest() and not shard._probing.locked()
        return shard.due.next_s == math.inf and may_rest and not shard.is_fresh

    await eventually(lambda: all(is_at_rest(each) for store in stores for each in store._shards))


async def is_woken(deployment: Deployment) -> bool:
    """Return whether no job is scheduled any more."""
    return not await deployment.rows("SELECT FROM items WHERE status = 'scheduled'")


async def cut_off(deployment: Deployment) -> None:
    """Close all connections of all nodes."""
    await deployment.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'leveret jobs'"
    )


async def is_quiet(deployment: Deployment) -> bool:
    """Return whether no node makes a statement for a while."""
    before = await deployment.last_statement()
    await asyncio.sleep(10 * RESTING.tick_s)
    return await deployment.last_statement() == before


def test_idle_nodes_cause_no_transactions(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (_, other):
            waiting = await begin_to_wait(other)
            await eventually(lambda: is_quiet(deployment))
            waiting.cancel()

    asyncio.run(main())


def test_nodes_rest_between_two_jobs(deployment: Deployment) -> None:
    """The flush marks of a job are kept for a minute, and nodes need not look until then."""

    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, other):
            for payload in (b"1", b"2"):
                await here.enqueue([new(payload=payload)])
                (job,) = await other.dequeue(*TOPIC, 1, None, int(WITHIN_S * 1000))
                await other.ack(*TOPIC, handles([job]))
                await eventually(lambda: is_quiet(deployment))
                assert await deployment.rows("SELECT FROM flush_marks")

    asyncio.run(main())


def test_an_idle_node_hands_out_a_delayed_job_that_another_node_took(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, other):
            waiting = await begin_to_wait(other)
            await until_at_rest(here, other)
            due_ms = here._tables.clock.now_ms() + SOON_MS
            await here.enqueue([new(deliver_after_ms=due_ms)])
            (job,) = await asyncio.wait_for(waiting, WITHIN_S)
            assert job.deliver_after_ms == due_ms
            assert other._tables.clock.now_ms() >= due_ms

    asyncio.run(main())


def test_other_nodes_learn_when_a_delayed_job_is_due(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, other):
            await until_at_rest(here, other)
            due_ms = here._tables.clock.now_ms() + HOUR_MS
            await here.enqueue([new(deliver_after_ms=due_ms)])
            await until_known(here, other)
            in_s = shard_of(other).due.next_s - asyncio.get_running_loop().time()
            assert HOUR_MS / 2 < in_s * 1000 < HOUR_MS + SOON_MS

    asyncio.run(main())


def test_a_lease_that_a_dead_node_gave_runs_out(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node("b", settings=RESTING) as other:
            here = await deployment.started("a", settings=RESTING)
            await here.enqueue([new()])
            await until_at_rest(here, other)

            async def is_told() -> bool:
                ready = "SELECT FROM items WHERE status = 'ready'"  # the first node was that slow
                return shard_of(other).due.next_s < math.inf or bool(await deployment.rows(ready))

            assert await here.dequeue(*TOPIC, 1, SOON_MS, 0)
            await eventually(is_told)
            await abandon(here)
            (job,) = await other.dequeue(*TOPIC, 1, None, int(WITHIN_S * 1000))
            assert job.attempt == 2

    asyncio.run(main())


@pytest.mark.parametrize("delay_ms", [HOUR_MS, None])
def test_other_nodes_learn_when_a_failed_job_is_due(
    deployment: Deployment, delay_ms: int | None
) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, other):
            slowly = TopicSettings(backoff_ms=HOUR_MS, backoff_ms_max=HOUR_MS)
            await here.set_settings(*TOPIC, slowly)
            await here.enqueue([new()])
            (job,) = await here.dequeue(*TOPIC, 1, HOUR_MS // 10, 0)
            await until_known(here, other)
            for store in (here, other):  # as if the lease had run out without a look
                shard_of(store).due.forget()
            await here.nack(*TOPIC, handles([job]), "again", delay_ms)
            await until_known(here, other)

    asyncio.run(main())


def test_nodes_learn_of_extended_leases_and_of_schedules(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.two_nodes(settings=RESTING) as (here, other):
            await until_at_rest(here, other)
            await here.set_schedule(
                Schedule(name="daily", namespace="n", topic="t", cron="0 0 * * *", payload=b"x")
            )
            await until_known(here, other)
            await here.delete_schedule("n", "daily")
            await here.enqueue([new()])
            (job,) = await here.dequeue(*TOPIC, 1, HOUR_MS, 0)
            for store in (here, other):
                shard_of(store).due.forget()
            await here.extend(*TOPIC, handles([job]), HOUR_MS // 2)
            await until_known(here, other)

    asyncio.run(main())


def test_a_node_whose_notifications_were_lost_looks_when_it_gets_them_again(
    deployment: Deployment,
) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            await store.enqueue([new(deliver_after_ms=store._tables.clock.now_ms() + HOUR_MS)])
            await eventually(lambda: not store._wal.outstanding)
            await until_known(store)
            await deployment.rows("UPDATE items SET deliver_after = now() - INTERVAL '1 s'")
            await cut_off(deployment)
            # No client waits: its call would fail if its connection is cut.
            await eventually(lambda: is_woken(deployment))

    asyncio.run(main())


def test_a_node_goes_on_if_it_could_not_tell_the_others(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            due = shard_of(store).due
            due.expect(1e306)  # no notification can hold it
            await eventually(lambda: not due.is_news)
            await store.enqueue([new(deliver_after_ms=store._tables.clock.now_ms() + SOON_MS)])
            await eventually(lambda: not store._wal.outstanding)
            await eventually(lambda: is_woken(deployment))

    asyncio.run(main())


def test_a_shard_learns_of_due_times_of_a_topic_that_moved_there(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await store.enqueue([new(deliver_after_ms=store._tables.clock.now_ms() + HOUR_MS)])
            await eventually(lambda: not store._wal.outstanding)
            (target,) = (each for each in store._shards if each is not shard_of(store))
            await eventually(lambda: target.due.next_s == math.inf)
            async with open_mover(deployment.dsns) as mover:
                await mover.move(TOPIC, target.index)
            await eventually(lambda: target.due.next_s < math.inf)

    asyncio.run(main())


@pytest.mark.parametrize(
    "call",
    [lambda store: store.enqueue([new()]), lambda store: store.dequeue(*TOPIC, 1, None, 0)],
    ids=["enqueue", "dequeue"],
)
def test_a_call_after_a_rest_measures_the_clock_first(
    deployment: Deployment, call: Callable[[ShardsStore], Awaitable[object]]
) -> None:
    machine = Machine()

    async def main() -> None:
        async with deployment.node(clock=machine.clock, settings=RESTING) as store:
            await until_at_rest(store)
            machine.ahead_s = 7200.0
            assert "ahead of" in await refuses(call(store), JobsUnavailableError)

    asyncio.run(main())


def test_a_call_measures_the_clock_first_although_all_connections_are_in_use(
    deployment: Deployment,
) -> None:
    machine = Machine()

    async def main() -> None:
        async with deployment.node(clock=machine.clock, settings=RESTING) as store:
            await until_at_rest(store)
            shard = shard_of(store)
            are_used = asyncio.Barrier(len(shard._free) + 1)
            is_over = asyncio.Event()

            async def use(_connection: object) -> None:
                await are_used.wait()
                await is_over.wait()

            calls = asyncio.gather(*(shard.run(use) for _ in list(shard._free)))
            await are_used.wait()
            assert not shard._free
            machine.ahead_s = 7200.0
            assert "ahead of" in await refuses(store.enqueue([new()]), JobsUnavailableError)
            is_over.set()
            await calls

    asyncio.run(main())


def test_a_call_after_a_rest_does_not_wait_for_connections_that_the_network_lost(
    deployment: Deployment, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with proxy(postgres.port) as line:
            dsns = [dsn.replace(f":{postgres.port}/", f":{line.port}/") for dsn in deployment.dsns]
            async with deployment.at(dsns=dsns).node(settings=RESTING) as store:
                await until_at_rest(store)
                monkeypatch.setattr(keepalive, "REST_S", 0.0)
                line.silence()
                await asyncio.gather(*(shard.freshen() for shard in store._shards))
                (id,) = (await store.enqueue([new()])).ids
                assert [job.id for job in await store.dequeue(*TOPIC, 1, None, 0)] == [id]
                assert [shard.health.failures for shard in store._shards] == [0, 0]
                assert all(shard.is_listening for shard in store._shards)

    asyncio.run(main())


def test_a_slow_shard_keeps_its_connections_after_a_rest(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It allows no further connection, so that the first one has to do."""

    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            shard = shard_of(store)
            before = shard._listener
            monkeypatch.setattr(keepalive, "REST_S", 0.0)
            monkeypatch.setattr(keepalive, "SIGN_S", 0.0)
            has_tried = asyncio.Event()
            measure = shard._measure

            async def refused() -> None:
                has_tried.set()
                raise asyncpg.TooManyConnectionsError("too many clients")

            async def slowly(connection: object) -> None:
                await has_tried.wait()
                await measure(connection)

            monkeypatch.setattr(shard, "_connect", refused)
            monkeypatch.setattr(shard, "_measure", slowly)
            await shard.freshen()
            assert shard.is_up and shard.is_fresh
            assert shard._listener is before and shard.is_listening
            monkeypatch.undo()

    asyncio.run(main())


def test_the_system_looks_after_connections_that_rest(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            for shard in store._shards:
                used = shard._listener._transport.get_extra_info("socket")
                assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                for option, value in keepalive.TCP_OPTIONS.items():
                    assert used.getsockopt(socket.IPPROTO_TCP, option) == value

    asyncio.run(main())


def test_calls_at_the_same_time_after_a_rest_wait_for_the_same_measurement(
    deployment: Deployment,
) -> None:
    machine = Machine()

    async def main() -> None:
        async with deployment.node(clock=machine.clock, settings=RESTING) as store:
            await until_at_rest(store)
            machine.ahead_s = 7200.0
            calls = [refuses(store.enqueue([new()]), JobsUnavailableError) for _ in range(3)]
            assert all("ahead of" in text for text in await asyncio.gather(*calls))

    asyncio.run(main())


def test_a_call_without_a_task_is_declined_after_a_rest(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            assert not store.begin_enqueue([new()], lambda _: None)

    asyncio.run(main())


def test_a_shard_that_went_away_during_a_rest_is_noticed(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            shard = shard_of(store)
            before = shard._listener
            await cut_off(deployment)
            await eventually(lambda: shard.is_listening and shard._listener is not before)

    asyncio.run(main())


def test_a_listener_that_the_network_lost_without_a_word_is_replaced(
    deployment: Deployment, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with proxy(postgres.port) as line:
            dsns = [dsn.replace(f":{postgres.port}/", f":{line.port}/") for dsn in deployment.dsns]
            settings = structs.replace(QUIET, probe_s=0.1, idle_s=0.2)
            async with deployment.at(dsns=dsns).node(settings=settings) as store:
                shard = shard_of(store)
                both = asyncio.Barrier(
                    2
                )  # of two connections, so that one need not be the listener

                async def work(_connection: object) -> None:
                    await both.wait()

                await asyncio.gather(shard.run(work), shard.run(work))
                before = shard._listener
                short = structs.replace(settings, deadline_s=2.0)
                monkeypatch.setattr(shard, "_settings", short)
                line.silence(before._transport.get_extra_info("sockname")[1])
                await eventually(lambda: shard.is_listening and shard._listener is not before)

    asyncio.run(main())


def test_a_shard_that_fails_a_call_during_a_rest_is_probed_again(deployment: Deployment) -> None:
    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            shard = shard_of(store)
            used = shard._listener  # by a call that goes on, so that its loss tells nothing
            shard._free.remove(used)
            shard._open_breaker(TimeoutError())
            await eventually(lambda: shard.is_up)
            used.terminate()

    asyncio.run(main())


def test_a_disk_that_was_full_for_a_statement_during_a_rest_is_probed_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.job_service.shards.shard.FULL_KEPT_S", 0.0)

    async def main() -> None:
        async with deployment.node(settings=RESTING) as store:
            await until_at_rest(store)
            shard = shard_of(store)
            refused = shard.fetch("DO $$ BEGIN RAISE disk_full; END $$")
            assert "refuses" in await refuses(refused, JobsUnavailableError)
            assert shard.health.write_refusal
            await eventually(lambda: not shard.health.write_refusal)

    asyncio.run(main())
