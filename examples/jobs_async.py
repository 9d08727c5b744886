"""Takes jobs without a worker: a batch at a time, settled with one call."""

import asyncio

from leveret.jobs import AsyncClient, Outcome


async def main(client: AsyncClient) -> int:
    """Do all refunds; return how many were done."""
    done = 0
    while jobs := await client.dequeue("refund", limit=50, wait_s=0.5):
        broken = [job for job in jobs if "order" not in job.json()]
        if broken:
            await client.nack_many(broken, "it has no order")
        outcomes = await client.ack_many([job for job in jobs if job not in broken])
        done += outcomes.count(Outcome.DONE)
    return done


async def run() -> None:
    async with AsyncClient(namespace="shop") as client:
        print(await main(client), "refunds are done")


if __name__ == "__main__":
    asyncio.run(run())
