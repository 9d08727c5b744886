"""The embedded store on an engine with a disk that the test controls."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import JobsUnavailableError, LeadLostError, StorageError
from leveret.job_model import Handle, NewJob
from leveret.job_service.embedded import dead_jobs
from leveret.job_service.embedded.store import EmbeddedStore
from tests.protocol.stage import Stage


class SlowHost:
    """A node whose log is synced when `on_disk` is set."""

    node_name = "test"

    def __init__(self) -> None:
        self.stage = Stage()
        self.broker = self.stage.broker
        self.on_disk = asyncio.Event()
        self.fault: StorageError | None = None  # of the log

    def now_ms(self) -> int:
        return self.stage.now_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.broker.begin_turn(self.stage.now_ms)
        yield
        self.stage.end_turn()

    async def synced(self) -> None:
        await self.on_disk.wait()
        if self.fault is not None:
            raise self.fault

    def begin_sync(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_task(self.synced())

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
