"""The servers that tests kill and start again."""

import asyncio

import asyncpg
import pytest

from tests.jobs.shards.deployment import WITHIN_S
from tools.services import Postgres

pytestmark = pytest.mark.compiled_only("servers do not depend on the form")

# A process that is busy with it notices the death of its parent only at the end.
LONG = "SELECT count(*) FROM generate_series(1, 3000000)"
IS_BUSY = "SELECT FROM pg_stat_activity WHERE state = 'active' AND query = $1"


def test_a_killed_postgresql_starts_again_while_its_children_were_busy(
    other_postgres: Postgres,
) -> None:
    async def main() -> None:
        busy = await asyncpg.connect(other_postgres.dsn(), timeout=WITHIN_S)
        watching = await asyncpg.connect(other_postgres.dsn(), timeout=WITHIN_S)
        call = asyncio.get_running_loop().create_task(busy.execute(LONG))
        while not (call.done() or await watching.fetch(IS_BUSY, LONG)):
            pass  # each look is a round trip
        other_postgres.end()
        other_postgres.start()
        for connection in (busy, watching):
            connection.terminate()
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(main())
