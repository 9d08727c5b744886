"""The embedded store on an engine with a disk that the test controls."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leveret import slices
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import (
    JobsFullError,
    JobsUnavailableError,
    LeadLostError,
    LeveretError,
    StorageError,
)
from leveret.job_model import Enqueued, Handle, LeasedJob, NewJob, Outcome, Schedule, TopicSettings
from leveret.job_service.embedded import dead_jobs
from leveret.job_service.embedded.store import NEW_TOPICS_MAX, EmbeddedStore
from leveret.job_service.embedded.topic import Topic
from leveret.job_service.store import AckedAndTaken
from leveret.runtime.sync_barrier import SyncEnd
from tests.protocol.stage import Stage


class SlowHost:
    """A node whose log is synced when `on_disk` is set."""

    node_name = "test"

    def __init__(self) -> None:
        self.stage = Stage()
        self.broker = self.stage.broker
        self.on_disk = asyncio.Event()
        self.fault: StorageError | None = None  # of the log
        self.syncs = 0  # that were waited for

    def now_ms(self) -> int:
        return self.stage.now_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.broker.begin_turn(self.stage.now_ms)
        yield
        self.stage.end_turn()

    async def synced(self) -> None:
        self.syncs += 1
        await self.on_disk.wait()
        if self.fault is not None:
            raise self.fault

    def begin_sync(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_task(self.synced())

    def sync_end(self) -> SyncEnd:
        end = SyncEnd()

        def on_synced(synced: "asyncio.Future[None]") -> None:
            fault = synced.exception()
            if isinstance(fault, Exception):
                end.set_exception(fault)
            else:
                end.set_result(None)

        self.begin_sync().add_done_callback(on_synced)
        return end

    def alarms(self) -> list[str]:
        return []

    def sessions(self) -> list[Session]:
        return []

    def make_vhost(self, name: str) -> Vhost:
        return self.broker.vhosts["/"]


def test_a_job_is_not_handed_out_before_it_is_on_disk() -> None:
    async def script(wait_ms: int) -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        job = NewJob(namespace="/", topic="t", payload=b"")
        async with asyncio.TaskGroup() as group:
            putting = group.create_task(store.enqueue([job]))
            taking = group.create_task(store.dequeue("/", "t", 1, None, wait_ms))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not putting.done()
            assert not taking.done(), "a kill could take the job back after somebody has seen it"
            host.on_disk.set()
        assert [job.id for job in taking.result()] == putting.result().ids

    for wait_ms in (0, 60_000):
        asyncio.run(script(wait_ms))


def test_an_ack_and_the_next_job_wait_for_the_disk_once() -> None:
    async def script() -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        host.on_disk.set()
        job = NewJob(namespace="/", topic="t", payload=b"")
        ids = (await store.enqueue([job, job])).ids
        (first,) = await store.dequeue("/", "t", 1, None, 0)
        host.on_disk.clear()
        host.syncs = 0
        told = asyncio.get_running_loop().create_future()
        handles = [Handle(first.id, first.token)]
        assert store.begin_take("/", "t", handles, 1, None, told.set_result, may_find_none=False)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not told.done(), "a kill could undo the ack"
        host.on_disk.set()
        found = await told
        assert (found.outcomes, [job.id for job in found.jobs]) == ([Outcome.DONE], ids[1:])
        assert host.syncs == 1

    asyncio.run(script())


def test_a_repeated_ack_waits_for_the_disk_as_the_first_one_does() -> None:
    """Its client takes the answer that the job is unknown for a success."""

    async def script() -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        host.on_disk.set()
        await store.enqueue([NewJob(namespace="/", topic="t", payload=b"")])
        (job,) = await store.dequeue("/", "t", 1, None, 0)
        host.on_disk.clear()
        handles = [Handle(job.id, job.token)]
        async with asyncio.TaskGroup() as group:
            acks = [group.create_task(store.ack("/", "t", handles)) for _ in range(2)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(ack.done() for ack in acks), "a kill could undo the ack"
            host.on_disk.set()
        assert [ack.result() for ack in acks] == [[Outcome.DONE], [Outcome.UNKNOWN]]

    asyncio.run(script())


def test_a_job_that_is_not_on_disk_is_not_taken_at_once() -> None:
    async def script() -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        job = NewJob(namespace="/", topic="t", payload=b"")
        async with asyncio.TaskGroup() as group:
            putting = group.create_task(store.enqueue([job]))
            await asyncio.sleep(0)
            told = asyncio.get_running_loop().create_future()
            assert store.begin_take("/", "t", [], 1, None, told.set_result, may_find_none=True)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not told.done(), "a kill could take the job back after somebody has seen it"
            host.on_disk.set()
        assert [job.id for job in (await told).jobs] == putting.result().ids

    asyncio.run(script())


@pytest.mark.parametrize("is_quick", [False, True])
def test_a_token_is_not_told_before_no_start_can_make_it_again(is_quick: bool) -> None:
    """After two kills in a row two workers had a lease under one token."""

    async def script() -> None:
        host = SlowHost()
        host.on_disk.set()
        job = NewJob(namespace="/", topic="t", payload=b"")
        ids = (await EmbeddedStore(host).enqueue([job, job])).ids
        store = EmbeddedStore(host)  # the next start: the jobs are on disk
        await store.stats("/")
        host.on_disk.clear()

        async def take() -> list[LeasedJob]:
            if not is_quick:
                return await store.dequeue("/", "t", 1, 1_000, 0)
            told = asyncio.get_running_loop().create_future()
            assert store.begin_take("/", "t", [], 1, 1_000, told.set_result, may_find_none=True)
            return (await told).jobs  # type: ignore[no-any-return]

        taking = asyncio.get_running_loop().create_task(take())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done(), "a kill could undo the floor, and the next start gives this token"
        host.on_disk.set()
        found = await taking
        host.on_disk.clear()
        found += await take()  # it does not wait: the floor is on disk
        assert [job.id for job in found] == ids

    asyncio.run(script())


def test_a_call_that_is_declined_has_changed_nothing() -> None:
    async def script() -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        host.on_disk.set()
        job = NewJob(namespace="/", topic="t", payload=b"")
        await store.enqueue([job, job])
        first, second = await store.dequeue("/", "t", 2, 1_000, 0)
        good = Handle(first.id, first.token)

        def is_begun(*handles: Handle, topic: str = "t") -> bool:
            return store.begin_take("/", topic, list(handles), 1, None, refuse, may_find_none=False)

        assert not is_begun(good), "no job is ready"
        await store.enqueue([job])
        assert not is_begun(good, topic="unknown")
        assert not is_begun(good, Handle(second.id, first.token)), "it is another lease"
        assert not is_begun(good, good), "only one of both can be done"
        waiting = asyncio.get_running_loop().create_task(store.dequeue("/", "t", 5, None, 60_000))
        assert len(await waiting) == 1
        waiting = asyncio.get_running_loop().create_task(store.dequeue("/", "t", 5, None, 60_000))
        await asyncio.sleep(0)
        assert not is_begun(good), "another call waits for jobs"
        await store.enqueue([job])
        assert len(await waiting) == 1
        assert (await store.stats("/"))[0].acked == 0
        assert await store.ack("/", "t", [good]) == [Outcome.DONE]
        await store.enqueue([job])
        host.stage.now_ms += 1_001
        assert not is_begun(Handle(second.id, second.token)), "its lease has ended"
        await store.stop(60)
        assert not is_begun()

    asyncio.run(script())


def test_many_new_topics_of_a_batch_are_created_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    jobs = [NewJob(namespace="/", topic=f"t{n}", payload=b"") for n in range(NEW_TOPICS_MAX + 1)]

    async def script() -> None:
        host = SlowHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        assert not store.begin_enqueue(jobs, refuse)
        putting = asyncio.get_running_loop().create_task(store.enqueue(jobs))
        for number in range(1, NEW_TOPICS_MAX + 1):
            await asyncio.sleep(0)
            assert len(host.broker.vhosts["/"].queues) == number
        assert len((await putting).ids) == len(jobs)
        assert [stats.ready for stats in await store.stats("/")] == [1] * len(jobs)
        assert store.begin_enqueue(jobs, lambda found: None), "the topics are known"

    asyncio.run(script())


def refuse(found: AckedAndTaken | Enqueued | Exception | None) -> None:
    raise AssertionError("the call was declined")


def test_all_of_the_dead_are_changed_in_slices_that_reach_the_disk() -> None:
    count = 2 * dead_jobs.SLICE + 1

    async def script(change: str) -> None:
        host = SlowHost()
        store = EmbeddedStore(host)
        host.on_disk.set()
        await store.enqueue([NewJob(namespace="/", topic="t", payload=b"") for _ in range(count)])
        jobs = await store.dequeue("/", "t", count, None, 0)
        handles = [Handle(job.id, job.token) for job in jobs]
        await store.nack("/", "t", handles, "no", None, is_dead=True)
        host.on_disk.clear()
        async with asyncio.TaskGroup() as group:
            changing = group.create_task(getattr(store, change)("/", "t", None))
            for _ in range(50):
                await asyncio.sleep(0)
            (stats,) = await store.stats("/")
            assert stats.dead == count - dead_jobs.SLICE, "nobody else has had a turn"
            host.on_disk.set()
        assert changing.result() == count

    for change in ("redrive", "delete_dead"):
        asyncio.run(script(change))


def test_a_stop_fails_if_the_log_fails_and_not_if_another_node_leads() -> None:
    async def script(fault: StorageError) -> None:
        host = SlowHost()
        host.fault = fault
        host.on_disk.set()
        await EmbeddedStore(host).stop(60)

    asyncio.run(script(LeadLostError("another node leads now: try again")))
    with pytest.raises(JobsUnavailableError, match="no sync"):
        asyncio.run(script(StorageError("no sync")))


def test_schedules_that_are_due_at_once_fire_in_several_turns() -> None:
    async def script() -> list[int]:
        host = SlowHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        for number in range(120):
            name = f"s{number}"
            await store.set_schedule(
                Schedule(name=name, namespace="/", topic="t", cron="* * * * *")
            )
        queue = host.broker.vhosts["/"].queues["t"]
        host.stage.now_ms += 60_000
        counts = []
        for _ in range(6):
            host.broker.on_pulse(host.stage.now_ms)
            host.stage.end_turn()
            counts.append(int(queue.ready.count))
        return counts

    assert asyncio.run(script()) == [50, 100, 120, 120, 120, 120]


class LonelyHost(SlowHost):
    """A node whose sessions may not be looked through, as there may be many thousand."""

    def sessions(self) -> list[Session]:
        raise AssertionError("no consumer over AMQP holds a message of the topic")


def test_an_unknown_job_is_not_searched_in_the_sessions_of_other_topics() -> None:
    async def script() -> None:
        host = LonelyHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        job = NewJob(namespace="/", topic="t", payload=b"")
        await store.enqueue([job, job])
        (held,) = await store.dequeue("/", "t", 1, None, 0)
        unknown = held.id + 1_000_000
        assert await store.ack("/", "t", [Handle(unknown)]) == [Outcome.UNKNOWN]
        assert await store.cancel("/", "t", [unknown, held.id]) == [Outcome.UNKNOWN, Outcome.STALE]
        assert await store.find("/", "t", unknown) is None
        leased, _ = await store.list_jobs("/", "t", "leased", 10, "")
        assert [job.id for job in leased] == [held.id]

    asyncio.run(script())


def test_topics_of_deleted_queues_are_forgotten() -> None:
    async def script() -> None:
        host = SlowHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        vhost = host.broker.vhosts["/"]
        for number in range(1_500):
            name = f"t{number}"
            await store.set_settings("/", name, TopicSettings())
            with host.turn():
                vhost.delete_queue(name)
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Topic)]
        assert len(kept) <= 1_000

    asyncio.run(script())


class AlarmedHost(SlowHost):
    def alarms(self) -> list[str]:
        return ["low on memory"]


def test_no_topic_is_created_while_the_node_has_no_room() -> None:
    async def script() -> None:
        host = AlarmedHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        with pytest.raises(JobsFullError, match="low on memory"):
            await store.dequeue("/", "new", 1, None, 0)
        with host.turn():
            host.broker.vhosts["/"].declare_queue("old", durable=True, arguments={})
        assert await store.dequeue("/", "old", 1, None, 0) == []

    asyncio.run(script())


def test_each_search_lets_other_work_run_first() -> None:
    """A batch may have a thousand jobs that do not exist, each with a search of its own."""

    async def script() -> None:
        host = SlowHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        await store.enqueue([NewJob(namespace="/", topic="t", payload=b"")])
        passes = 0

        async def count_passes() -> None:
            nonlocal passes
            while True:
                passes += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count_passes())
            for number in range(50):
                before = passes
                assert await store.ack("/", "t", [Handle(number + 1)]) == [Outcome.UNKNOWN]
                assert passes > before
            counting.cancel()

    asyncio.run(script())


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_batch_whose_keys_cannot_be_remembered_is_not_enqueued(is_declared: bool) -> None:
    async def script() -> None:
        host = SlowHost()
        host.on_disk.set()
        store = EmbeddedStore(host)
        vhost = host.broker.vhosts["/"]
        if is_declared:
            with host.turn():
                vhost.declare_exchange("leveret.jobs", "direct", durable=True, arguments={})
        vhost.exchanges_max = len(vhost.exchanges)
        jobs = [
            NewJob(namespace="/", topic="t", payload=b"", idempotency_key=key)
            for key in (None, "k")
        ]
        with pytest.raises(LeveretError, match=r"leveret\.jobs"):
            await store.enqueue(jobs)
        assert await store.dequeue("/", "t", 2, None, 0) == []

    asyncio.run(script())
