"""Databases with the current schema, used by one test after the other.

To make and drop two databases takes a quarter of a second of CPU, which is seven times as long as
to empty their tables. A database that a test gives back is kept if only its rows have changed: all
connections to it are ended, and its tables get the rows of a new database. Any other database is
dropped.
"""

import asyncio
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from leveret.job_service.shards.migration import migrate
from tests.jobs.shards.deployment import WITHIN_S, eventually
from tools.services import Postgres

_OTHERS: Final = "FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
_TABLES: Final = "SELECT relname FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
_USED: Final = f"{_TABLES} AND pg_relation_size(oid) > 0"
# Copies of a database have the numbers of its objects. A new table has no statistics, which decide
# how it is read.
_SCHEMA: Final = """
SELECT md5(concat(
    (SELECT array_agg((oid, relname, reloptions) ORDER BY oid) FROM pg_class
        WHERE oid >= 16384 AND relpersistence <> 't'),
    (SELECT array_agg((attrelid, attnum, attname, atttypid, attnotnull, attisdropped)
        ORDER BY attrelid, attnum) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE attrelid >= 16384 AND relpersistence <> 't'),
    (SELECT array_agg((oid, tgname, tgenabled) ORDER BY oid) FROM pg_trigger),
    (SELECT array_agg((oid, proname, prosrc) ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
    (SELECT array_agg((oid, conname) ORDER BY oid) FROM pg_constraint WHERE oid >= 16384),
    (SELECT array_agg((starelid, staattnum)) FROM pg_statistic WHERE starelid >= 16384)))
"""


@contextmanager
def migrated(server: Postgres, count: int) -> Iterator[list[str]]:
    """Databases with the current schema and the rows of a new database."""
    pool = _pool_of(server)
    names = pool.take(count)
    yield [server.dsn(name) for name in names]
    pool.give_back(names)


class _Pool:
    """The databases of a server that nobody uses."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._free: list[str] = []
        # A database that is copied, and whose rows are copied.
        (self._template,) = server.create(1)
        self._schema, self._rows = asyncio.run(self._make_template())

    async def _make_template(self) -> tuple[str, dict[str, list[tuple[Any, ...]]]]:
        """Migrate the template; return its schema, and its rows by table."""
        connection = await asyncpg.connect(self._server.dsn(self._template), timeout=WITHIN_S)
        await migrate(connection)
        tables = [row["relname"] for row in await connection.fetch(_USED)]
        rows = {table: await _rows(connection, table) for table in tables}
        schema = await connection.fetchval(_SCHEMA)
        await connection.close()
        # The server refuses to copy a database while it still ends a connection to it.
        watching = await asyncpg.connect(self._server.dsn(), timeout=WITHIN_S)
        await _wait_for_others(watching, self._template)
        await watching.close()
        return schema, rows

    def take(self, count: int) -> list[str]:
        """Return the names of databases, those that are kept first."""
        kept = [self._free.pop() for _ in range(min(count, len(self._free)))]
        missing = count - len(kept)
        return kept + self._server.create(missing, self._template) if missing else kept

    def give_back(self, names: list[str]) -> None:
        """Keep the databases that can be made as new, and drop the others."""
        for name in names:
            if asyncio.run(self._renew(name)):
                self._free.append(name)
            else:
                self._server.drop([name])

    async def _renew(self, name: str) -> bool:
        """Make a database as new; return False if more than its rows has changed."""
        connection = await asyncpg.connect(self._server.dsn(name), timeout=WITHIN_S)
        try:
            await connection.fetch(f"SELECT pg_terminate_backend(pid) {_OTHERS}", name)
            await _wait_for_others(connection, name)
            if await connection.fetchval(_SCHEMA) != self._schema:
                return False
            used = [row["relname"] for row in await connection.fetch(_USED)]
            await connection.execute(f"TRUNCATE {', '.join(used)}")
            for table, rows in self._rows.items():
                await connection.copy_records_to_table(table, records=rows)
            return True
        finally:
            await connection.close()


@functools.cache
def _pool_of(server: Postgres) -> _Pool:
    return _Pool(server)


async def _rows(connection: asyncpg.Connection, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await connection.fetch(f"SELECT * FROM {table}")]


async def _wait_for_others(connection: asyncpg.Connection, name: str) -> None:
    """Wait until nobody else is connected to a database."""

    async def is_free() -> bool:
        return not await connection.fetch(f"SELECT {_OTHERS}", name)

    await eventually(is_free)
