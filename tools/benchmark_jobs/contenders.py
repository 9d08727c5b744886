"""The queues that are compared, each used as its documentation says: their common shape, and ours.

`rivals.py` has the others.
"""

import asyncio
from typing import Final, Protocol

from leveret.jobs import AsyncClient, Job, NewJob, Worker
from tools.benchmark_jobs.servers import NAMESPACE, Running

PAYLOAD: Final = b'{"order": 4711, "customer": "A. Hare", "amount": "12.50", "currency": "EUR"}'
TOPIC: Final = "bench"
WITHIN_S: Final = 300.0


class Contender(Protocol):
    """One queue."""

    name: str
    pids: list[int]  # of its servers
    has_raw: bool  # whether it has calls to take a job and to ack it
    concurrencies: tuple[int, ...]  # of workers that it can run in one process

    async def start(self) -> None: ...

    async def enqueue(self, count: int) -> None:
        """Enqueue by one call, or by concurrent calls where the queue has no call for many."""

    async def take(self, clients: int, count: int) -> None:
        """Take and ack jobs, one at a time by each client, until `count` are done.

        A queue with a call that acks a job and takes the next one uses that call.
        """

    async def work(self, concurrency: int, count: int) -> None:
        """Let the worker of the queue do `count` jobs."""

    async def stop(self) -> None: ...


class LeveretJobs:
    """Our service over HTTP, by its client and its worker."""

    has_raw = True
    concurrencies: tuple[int, ...] = (1, 32)

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

    async def take(self, clients: int, count: int) -> None:
        left = count

        async def client() -> None:
            nonlocal left
            held: list[Job] = []
            while left > 0:
                left -= 1
                _, held = await self.client.ack_and_dequeue(held, TOPIC, wait_s=1.0)
                assert len(held) == 1
            await self.client.ack_many(held)

        await side_by_side([client] * clients)

    async def work(self, concurrency: int, count: int) -> None:
        worker = Worker(self._node.url, token=self._node.token, namespace=NAMESPACE)
        left = count

        @worker.task(TOPIC, concurrency=concurrency)
        async def done(_job: Job) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                worker.stop()

        async with asyncio.timeout(WITHIN_S):
            await worker.work()

    async def stop(self) -> None:
        self.client.close()


async def side_by_side(loops: "list[Loop]") -> None:
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop())


class Loop(Protocol):
    """One client: calls one after the other."""

    async def __call__(self) -> None: ...
