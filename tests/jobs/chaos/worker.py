"""A worker that is killed: `python -m tests.jobs.chaos.worker URL TOKEN LEDGER_PORT KIND`.

Of kind `calls` it uses the client and tells of its acks; of kind `worker` it is a `Worker`, whose
acks nobody sees.
"""

import asyncio
import logging
import sys
from typing import Final

from leveret.jobs import AsyncClient, CallError, Job, Outcome, Worker

NAMESPACE: Final = "chaos"
TOPIC: Final = "work"
LEASE_S: Final = 1.0
KINDS: Final = ("calls", "worker")
_TAKEN: Final = 8


class Teller:
    """Tells the ledger, one line at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    async def tell(self, *words: object) -> bool:
        async with self._lock:
            self._writer.write((" ".join(map(str, words)) + "\n").encode())
            return (await self._reader.readline()) == b"yes\n"


async def by_calls(url: str, token: str, teller: Teller) -> None:
    client = AsyncClient(url, token=token, namespace=NAMESPACE, timeout_s=5)
    while True:
        try:
            jobs = await client.dequeue(TOPIC, limit=_TAKEN, wait_s=1, lease_s=LEASE_S)
            done = [job for job in jobs if await _applied(job, teller)]
            outcomes = await client.ack_many(done)
        except CallError:
            await asyncio.sleep(0.05)
            continue
        for job, outcome in zip(done, outcomes, strict=True):
            if outcome is Outcome.DONE:
                await teller.tell("acked", job.id, job.token)


async def by_worker(url: str, token: str, teller: Teller) -> None:
    worker = Worker(url, token=token, namespace=NAMESPACE, lease_s=LEASE_S)

    @worker.task(TOPIC, concurrency=_TAKEN)
    async def work(job: Job) -> None:
        await _applied(job, teller)

    await worker.work()


async def _applied(job: Job, teller: Teller) -> bool:
    await teller.tell("took", job.id, job.token, job.json()["key"])
    await asyncio.sleep(0.005)
    return await teller.tell("apply", job.id, job.token)


async def main(url: str, token: str, port: str, kind: str) -> None:
    teller = Teller(*await asyncio.open_connection("127.0.0.1", int(port)))
    await (by_calls if kind == "calls" else by_worker)(url, token, teller)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main(*sys.argv[1:5]))
