"""The queues that are compared, each used as its documentation says.

`enqueue` is one call with a number of jobs, or that many concurrent calls where a queue has no call
for batches. `take` takes and finishes a number of jobs that are there, `batch` at a time. A queue
without a call for that uses its own worker with `batch` concurrent jobs.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from leveret.jobs import AsyncClient, Job, NewJob, Worker
from tools.benchmark_jobs.servers import NAMESPACE, Running

PAYLOAD: Final = b'{"order": 4711, "customer": "A. Hare", "amount": "12.50", "currency": "EUR"}'
TOPIC: Final = "bench"
TAKERS: Final = 16  # loops that take one job at a time, side by side
BATCH_TAKERS: Final = 4  # loops that take a hundred
TAKE_WITHIN_S: Final = 300.0


class Contender(Protocol):
    """One queue."""

    name: str
    pids: list[int]  # of its servers

    async def start(self) -> None: ...

    async def enqueue(self, count: int) -> None: ...

    async def take(self, count: int, batch: int) -> None: ...

    async def stop(self) -> None: ...


class LeveretJobs:
    """Our service over HTTP, by its client."""

    def __init__(self, name: str, node: Running, pids: list[int]) -> None:
        self.name = name
        self.pids = [node.pid, *pids]
        self.client = AsyncClient(node.url, token=node.token, namespace=NAMESPACE, timeout_s=60)
        self._node = node

    async def start(self) -> None:
        await self.enqueue(1)
        await self.take(1, 1)

    async def enqueue(self, count: int) -> None:
        jobs = [NewJob(topic=TOPIC, payload=PAYLOAD) for _ in range(count)]
        await self.client.enqueue_many(jobs)

    async def take(self, count: int, batch: int) -> None:
        left = [count]
        takers = min(TAKERS if batch == 1 else BATCH_TAKERS, count)
        async with asyncio.timeout(TAKE_WITHIN_S), asyncio.TaskGroup() as group:
            for _ in range(takers):
                group.create_task(self._take_until(left, batch))

    async def _take_until(self, left: list[int], batch: int) -> None:
        while left[0] > 0:
            jobs = await self.client.dequeue(TOPIC, limit=batch, wait_s=0.1)
            if jobs:
                left[0] -= len(jobs)
                await self.client.ack_many(jobs)

    async def stop(self) -> None:
        self.client.close()


class LeveretWorker(LeveretJobs):
    """The same, by its worker: what its users write."""

    async def take(self, count: int, batch: int) -> None:
        worker = Worker(self._node.url, token=self._node.token, namespace=NAMESPACE)
        left = count

        @worker.task(TOPIC, concurrency=max(batch, TAKERS))
        async def done(_job: Job) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                worker.stop()

        async with asyncio.timeout(TAKE_WITHIN_S):
            await worker.work()


class Procrastinate:
    """procrastinate on PostgreSQL."""

    name = "procrastinate"

    def __init__(self, server: Running) -> None:
        import procrastinate

        self.pids = [server.pid]
        connector = procrastinate.PsycopgConnector(
            conninfo=server.url, min_size=TAKERS, max_size=TAKERS + 4
        )
        self._app = procrastinate.App(connector=connector)

        async def done(payload: str) -> None:
            assert payload

        self._task: Any = self._app.task(done, name="bench", queue=TOPIC)

    async def start(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()
        await self.enqueue(1)
        await self.take(1, 1)

    async def enqueue(self, count: int) -> None:
        text = PAYLOAD.decode()
        if count == 1:
            await self._task.defer_async(payload=text)
        else:
            await self._task.batch_defer_async(*[{"payload": text} for _ in range(count)])

    async def take(self, count: int, batch: int) -> None:
        await asyncio.wait_for(
            self._app.run_worker_async(
                queues=[TOPIC],
                concurrency=max(batch, TAKERS),
                wait=False,
                listen_notify=False,
                install_signal_handlers=False,
                delete_jobs="successful",
            ),
            TAKE_WITHIN_S,
        )

    async def stop(self) -> None:
        await self._app.close_async()


class Arq:
    """arq on Redis."""

    name = "arq"

    def __init__(self, server: Running) -> None:
        from arq.connections import RedisSettings

        self.pids = [server.pid]
        self._settings = RedisSettings.from_dsn(server.url.removesuffix("/0") + "/1")
        self._pool: Any = None

    async def start(self) -> None:
        from arq import create_pool

        self._pool = await create_pool(self._settings)
        await self.enqueue(1)
        await self.take(1, 1)

    async def enqueue(self, count: int) -> None:
        if count == 1:
            await self._pool.enqueue_job("done", PAYLOAD)
        else:  # it has no call for many
            calls = [self._pool.enqueue_job("done", PAYLOAD) for _ in range(count)]
            await asyncio.gather(*calls)

    async def take(self, count: int, batch: int) -> None:
        from arq.worker import Worker as ArqWorker
        from arq.worker import func

        async def done(_context: dict[Any, Any], payload: bytes) -> None:
            assert payload

        worker = ArqWorker(
            [func(done, name="done", keep_result=0)],
            redis_pool=self._pool,
            burst=True,
            max_jobs=max(batch, TAKERS),
            poll_delay=0.01,
            handle_signals=False,
            log_results=False,
        )
        await asyncio.wait_for(worker.async_run(), TAKE_WITHIN_S)

    async def stop(self) -> None:
        await self._pool.aclose()


Make = Callable[[], Contender]
