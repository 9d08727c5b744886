"""Hands the rows of a table of jobs in PostgreSQL to the jobs service, each of them once.

    create table outbox (
        id       bigint generated always as identity primary key,
        topic    text not null,
        payload  jsonb not null,
        priority integer not null default 0,
        run_at   timestamptz not null default now()
    );

Programs insert rows in the transaction that makes a job necessary. This program replaces workers
that poll the table. Several copies of it may run. It needs asyncpg.

    export LEVERET_JOBS_TOKEN=$(leveret jobs token --data ./data --namespace shop)
    python examples/jobs_outbox.py postgresql://app@localhost/app
"""

import asyncio
import sys

import asyncpg

from leveret.jobs import AsyncClient, NewJob

BATCH = 500
PAUSE_S = 0.5
TAKE = """
    select id, topic, payload, priority, run_at from outbox
    order by priority, run_at limit $1 for update skip locked
"""
FORGET = "delete from outbox where id = any($1::bigint[])"


async def relay(database: asyncpg.Connection, client: AsyncClient) -> int:
    """Hand over one batch; how many rows that were.

    Whoever dies between the two systems leaves the rows in the table. They are handed over again
    under the same keys, and the service answers with the jobs that it has.
    """
    async with database.transaction():
        rows = await database.fetch(TAKE, BATCH)
        jobs = [
            NewJob(
                topic=row["topic"],
                payload=row["payload"].encode(),
                priority=row["priority"],
                deliver_after=row["run_at"],
                idempotency_key=f"outbox-{row['id']}",
            )
            for row in rows
        ]
        await client.enqueue_many(jobs)
        await database.execute(FORGET, [row["id"] for row in rows])
    return len(rows)


async def main(dsn: str) -> None:
    database = await asyncpg.connect(dsn)
    async with AsyncClient(namespace="shop") as client:
        while True:
            if await relay(database, client) < BATCH:
                await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
