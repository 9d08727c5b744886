"""A long backlog does not make a claim look at more rows."""

import asyncio

import asyncpg
import pytest

from leveret.job_service.shards.connecting import SERVER_SETTINGS
from tests.jobs.shards.deployment import Deployment, new, topic_on

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

BACKLOG = 10_000
ROWS_MAX = 60  # of a claim of ten and its acks, however many wait

FILL = """
INSERT INTO items (id, namespace, topic, status, priority, payload, deliver_after, created_at,
    lease_expires_at)
SELECT n, 'n', $1, $2, n % 3, 'x', now() + $3 * INTERVAL '1 hour', now(),
    now() + INTERVAL '1 hour'
FROM generate_series($4::BIGINT, $4 + $5 - 1) AS n
"""
READ = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'items'"


def test_a_claim_looks_at_the_jobs_that_it_leases_and_no_more(deployment: Deployment) -> None:
    topic = topic_on(0)

    async def main() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(topic)])
        connection = await asyncpg.connect(deployment.dsns[0], server_settings=SERVER_SETTINGS)
        await claim(connection, topic)  # plans are made while there is next to nothing
        for number, status in enumerate(("ready", "scheduled", "processing", "dead")):
            ahead_h = 1 if status == "scheduled" else -1
            first = 1 + number * BACKLOG
            await connection.execute(FILL, topic, status, ahead_h, first, BACKLOG)
        assert await claim(connection, topic) <= ROWS_MAX
        await connection.close()

    asyncio.run(main())


async def claim(connection: asyncpg.Connection, topic: str) -> int:
    """Lease ten and acknowledge them; how many rows that looked at."""
    async with connection.transaction():
        jobs = await connection.fetch(
            "SELECT * FROM leveret_claim('n', $1, 10, 30000, 0, now())", topic
        )
        assert jobs
        await connection.fetch(
            "SELECT * FROM leveret_ack('n', $1, $2::BIGINT[], $3::BIGINT[], now())",
            topic,
            [job["job_id"] for job in jobs],
            [job["job_token"] for job in jobs],
        )
        row = await connection.fetchrow(READ)
        assert row["seq_tup_read"] == 0
        return int(row["idx_tup_fetch"])
