"""The embedded store on an engine whose disk answers when it is told to."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from leveret.engine.session import Session
from leveret.engine.vhost import Vhost
from leveret.jobs.service.embedded.store import EmbeddedStore
from leveret.jobs.service.items import NewJob
from tests.protocol.stage import Stage


class SlowHost:
    """A node whose log is synced when `on_disk` is set."""

    node_name = "test"

    def __init__(self) -> None:
        self.stage = Stage()
        self.broker = self.stage.broker
        self.on_disk = asyncio.Event()

    def now_ms(self) -> int:
        return self.stage.now_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.broker.begin_turn(self.stage.now_ms)
        yield
        self.stage.end_turn()

    async def synced(self) -> None:
        await self.on_disk.wait()

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
        assert [job.id for job in taking.result()] == putting.result()

    for wait_ms in (0, 60_000):
        asyncio.run(script(wait_ms))
