"""A database that a test has used is as good as new for the next one."""

import asyncio

import asyncpg
import pytest

from leveret.job_service.shards.migration import STEPS
from tests.jobs.shards.databases import migrated
from tests.jobs.shards.deployment import WITHIN_S
from tools.services import Postgres

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

OTHERS = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def fetch(dsn: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(dsn, timeout=WITHIN_S)
    rows = [tuple(row) for row in await connection.fetch(sql)]
    await connection.close()
    return rows


def test_rows_and_connections_of_the_test_before_are_gone(postgres: Postgres) -> None:
    async def leave_open(dsn: str) -> asyncpg.Connection:
        connection = await asyncpg.connect(dsn, timeout=WITHIN_S)
        await connection.execute("UPDATE floors SET floor = 7")
        await connection.execute("INSERT INTO map_state VALUES (3)")
        await connection.execute("BEGIN")
        await connection.execute("INSERT INTO homes VALUES (0, 3)")
        return connection

    async def check(dsn: str) -> None:
        assert await fetch(dsn, OTHERS) == []
        assert await fetch(dsn, "SELECT floor FROM floors") == [(0,)]
        assert await fetch(dsn, "SELECT max(version) FROM leveret_version") == [(len(STEPS),)]
        assert await fetch(dsn, "SELECT FROM map_state") == []
        assert await fetch(dsn, "SELECT FROM homes") == []

    async def end(connection: asyncpg.Connection) -> None:
        connection.terminate()

    with asyncio.Runner() as runner:
        with migrated(postgres, 1) as [used]:
            connection = runner.run(leave_open(used))
        with migrated(postgres, 1) as [dsn]:
            assert dsn == used
            asyncio.run(check(dsn))
        runner.run(end(connection))


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more ()",
        "ALTER TABLE items RENAME TO elsewhere",
        "ALTER TABLE items ALTER COLUMN payload DROP NOT NULL",
        "DROP INDEX items_claim",
        "ALTER TABLE topics DROP CONSTRAINT topics_state_check",
        "CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN END $$",
        "CREATE OR REPLACE FUNCTION leveret_slot(ns TEXT, tp TEXT) RETURNS BIGINT"
        " LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT 0::BIGINT $$",
        "ANALYZE floors",
    ],
)
def test_a_database_whose_schema_has_changed_is_not_used_again(
    postgres: Postgres, change: str
) -> None:
    with migrated(postgres, 1) as [used]:
        asyncio.run(fetch(used, change))
    with migrated(postgres, 1) as [dsn]:
        assert dsn != used
