"""The other queues: arq and RQ on Redis, procrastinate and SQL written by hand on PostgreSQL."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import asyncpg

from tools.benchmark_jobs.contenders import PAYLOAD, TOPIC, WITHIN_S, side_by_side
from tools.benchmark_jobs.servers import Running

CLIENTS_MAX: Final = 32


class Procrastinate:
    """procrastinate on PostgreSQL. Its raw calls are those that its own worker makes."""

    name = "procrastinate"
    has_raw = True
    concurrencies: tuple[int, ...] = (1, 32)

    def __init__(self, server: Running) -> None:
        import procrastinate

        self.pids = [server.pid]
        connector = procrastinate.PsycopgConnector(
            conninfo=server.url, min_size=CLIENTS_MAX, max_size=CLIENTS_MAX + 4
        )
        self._app = procrastinate.App(connector=connector)

        async def done(payload: str) -> None:
            assert payload

        self._task: Any = self._app.task(done, name="bench", queue=TOPIC)

    async def start(self) -> None:
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()
        await self.enqueue(1)
        await self.work(1, 1)

    async def enqueue(self, count: int) -> None:
        text = PAYLOAD.decode()
        if count == 1:
            await self._task.defer_async(payload=text)
        else:
            await self._task.batch_defer_async(*[{"payload": text} for _ in range(count)])

    async def take(self, clients: int, count: int) -> None:
        from procrastinate.jobs import Status

        left = count
        manager: Any = self._app.job_manager
        worker = await manager.register_worker()

        async def client() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                job = await manager.fetch_job([TOPIC], worker_id=worker)
                assert job is not None
                await manager.finish_job(job, Status.SUCCEEDED, delete_job=True)

        await side_by_side([client] * clients)
        await manager.unregister_worker(worker)

    async def work(self, concurrency: int, count: int) -> None:
        work = self._app.run_worker_async(
            queues=[TOPIC],
            concurrency=concurrency,
            wait=False,
            listen_notify=False,
            install_signal_handlers=False,
            delete_jobs="successful",
        )
        await asyncio.wait_for(work, WITHIN_S)

    async def stop(self) -> None:
        await self._app.close_async()


class Arq:
    """arq on Redis."""

    name = "arq"
    has_raw = False
    concurrencies: tuple[int, ...] = (1, 32)

    def __init__(self, server: Running) -> None:
        from arq.connections import RedisSettings

        self.pids = [server.pid]
        self._settings = RedisSettings.from_dsn(server.url.removesuffix("/0") + "/1")
        self._pool: Any = None

    async def start(self) -> None:
        from arq import create_pool

        self._pool = await create_pool(self._settings)
        await self.enqueue(1)
        await self.work(1, 1)

    async def enqueue(self, count: int) -> None:
        if count == 1:
            await self._pool.enqueue_job("done", PAYLOAD)
        else:  # it has no call for many
            calls = [self._pool.enqueue_job("done", PAYLOAD) for _ in range(count)]
            await asyncio.gather(*calls)

    async def take(self, clients: int, count: int) -> None:
        raise NotImplementedError

    async def work(self, concurrency: int, count: int) -> None:
        from arq.worker import Worker as ArqWorker
        from arq.worker import func

        async def done(_context: dict[Any, Any], payload: bytes) -> None:
            assert payload

        worker = ArqWorker(
            [func(done, name="done", keep_result=0)],
            redis_pool=self._pool,
            burst=True,
            max_jobs=concurrency,
            poll_delay=0.01,
            handle_signals=False,
            log_results=False,
        )
        await asyncio.wait_for(worker.async_run(), WITHIN_S)

    async def stop(self) -> None:
        await self._pool.aclose()


class Rq:
    """RQ on Redis, by threads. A worker does one job at a time; this one does not fork for it."""

    name = "RQ"
    has_raw = False
    concurrencies: tuple[int, ...] = (1,)

    def __init__(self, server: Running) -> None:
        from redis import Redis
        from rq import Queue

        self.pids = [server.pid]
        self._redis: Any = Redis.from_url(server.url.removesuffix("/0") + "/2")
        self._queue: Any = Queue(TOPIC, connection=self._redis)
        self._threads = ThreadPoolExecutor(CLIENTS_MAX)

    async def start(self) -> None:
        await self.enqueue(1)
        await self.work(1, 1)

    async def enqueue(self, count: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._enqueue, count)

    def _enqueue(self, count: int) -> None:
        from rq import Queue

        if count == 1:
            self._queue.enqueue(done, PAYLOAD, result_ttl=0)
        else:
            some = [Queue.prepare_data(done, args=(PAYLOAD,), result_ttl=0) for _ in range(count)]
            self._queue.enqueue_many(some)

    async def take(self, clients: int, count: int) -> None:
        raise NotImplementedError

    async def work(self, concurrency: int, count: int) -> None:
        from rq import SimpleWorker
        from rq.timeouts import TimerDeathPenalty

        worker: Any = SimpleWorker([self._queue], connection=self._redis)
        worker.death_penalty_class = TimerDeathPenalty  # signals work in the main thread only
        worker._install_signal_handlers = _no_signals
        run = asyncio.get_running_loop().run_in_executor
        await run(self._threads, lambda: worker.work(burst=True, logging_level="CRITICAL"))

    async def stop(self) -> None:
        self._threads.shutdown()
        self._redis.close()


def done(payload: bytes) -> None:
    """Task of RQ, which finds it by its name."""
    assert payload


def _no_signals() -> None:
    pass


_TABLE: Final = """
CREATE TABLE river_job (
    id BIGSERIAL PRIMARY KEY, state TEXT NOT NULL DEFAULT 'available', queue TEXT NOT NULL,
    priority SMALLINT NOT NULL DEFAULT 1, attempt SMALLINT NOT NULL DEFAULT 0,
    attempted_at TIMESTAMPTZ, created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    scheduled_at TIMESTAMPTZ NOT NULL DEFAULT now(), payload BYTEA NOT NULL
);
CREATE INDEX river_job_fetch ON river_job (state, queue, priority, scheduled_at, id);
"""
_PUT: Final = "INSERT INTO river_job (queue, payload) SELECT $1, unnest($2::BYTEA[])"
_TAKE: Final = """
WITH locked AS (
    SELECT id FROM river_job WHERE state = 'available' AND queue = $1 AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE river_job j SET state = 'running', attempt = attempt + 1, attempted_at = now()
FROM locked WHERE j.id = locked.id RETURNING j.id, j.payload
"""
_ACK: Final = "DELETE FROM river_job WHERE id = $1 AND state = 'running'"


class HandWrittenSql:
    """A table and `FOR UPDATE SKIP LOCKED`, as River does it, on asyncpg."""

    name = "SQL by hand"
    has_raw = True
    concurrencies: tuple[int, ...] = ()

    def __init__(self, server: Running) -> None:
        self.pids = [server.pid]
        self._url = server.url
        self._pool: Any = None

    async def start(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._url, min_size=CLIENTS_MAX, max_size=CLIENTS_MAX
        )
        await self._pool.execute(_TABLE)

    async def enqueue(self, count: int) -> None:
        await self._pool.execute(_PUT, TOPIC, [PAYLOAD] * count)

    async def take(self, clients: int, count: int) -> None:
        left = count

        async def client() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                row = await self._pool.fetchrow(_TAKE, TOPIC)
                await self._pool.execute(_ACK, row["id"])

        await side_by_side([client] * clients)

    async def work(self, concurrency: int, count: int) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        await self._pool.close()
