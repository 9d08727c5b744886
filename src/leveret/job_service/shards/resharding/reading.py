"""Reads tables of a shard in bulk and by plain calls, for programs beside the service.

A read is cut into ranges of job ids, so that many processes can share it, and comes in batches by
a cursor, so that none holds more than one batch. The ranges cover all numbers: what is put in after
they were made is in the last one. Rows that a shard has only while a topic comes to it or leaves
it (`topics.state`) are not among those that count: they are on another shard.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from leveret.errors import JobsUnavailableError

CONNECT_S: Final = 10.0
BATCH_ROWS: Final = 2_000
# Of a shard that holds a topic for another one, or has given it away.
COUNTS: Final = (
    "NOT EXISTS (SELECT FROM topics t WHERE t.namespace = j.namespace AND t.topic = j.topic"
    " AND t.state IN ('moved', 'arriving', 'settling'))"
)
COLUMNS: Final = (
    "id",
    "namespace",
    "topic",
    "status",
    "priority",
    "payload",
    "deliver_after",
    "lease_expires_at",
    "created_at",
    "idempotency_key",
    "fair_key",
    "fair_rank",
    "attempts",
    "token",
    "failures",
)


class Range(NamedTuple):
    """The jobs of a shard from `low` on and before `high`; None: no bound."""

    shard: int
    dsn: str
    low: int | None
    high: int | None


def ranges(dsns: Sequence[str], where: str, rows: int) -> list[Range]:
    """Every shard in pieces of about so many jobs that fulfil a condition; JobsUnavailableError."""

    async def work() -> list[Range]:
        bounds = await asyncio.gather(*(_bounds(dsn, where, rows) for dsn in dsns))
        return [
            Range(shard, dsn, low, high)
            for shard, (dsn, found) in enumerate(zip(dsns, bounds, strict=True))
            for low, high in zip([None, *found], [*found, None], strict=True)
        ]

    try:
        return asyncio.run(work())
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise JobsUnavailableError(
            f"a shard fails: {str(error) or type(error).__name__}"
        ) from error


async def _bounds(dsn: str, where: str, rows: int) -> list[int]:
    """The ids at which a new piece begins."""
    connection = await connect(dsn)
    try:
        found = await connection.fetch(
            "SELECT id FROM (SELECT j.id, row_number() OVER (ORDER BY j.id) AS n FROM items j"
            f" WHERE {where}) AS numbered WHERE n > 1 AND n % $1 = 1 ORDER BY id",
            max(rows, 2),
        )
        return [row["id"] for row in found]
    finally:
        connection.terminate()


def batches(part: Range, columns: Sequence[str], where: str) -> Iterator[list[Any]]:
    """The rows of a piece, a batch at a time; for programs without a loop."""
    loop = asyncio.new_event_loop()
    stream = _stream(part, columns, where)
    try:
        while (rows := loop.run_until_complete(_next(stream))) is not None:
            yield rows
    finally:
        loop.run_until_complete(stream.aclose())
        loop.close()


async def _next(stream: Any) -> list[Any] | None:
    return await anext(stream, None)


async def _stream(part: Range, columns: Sequence[str], where: str) -> Any:
    bounds = [where]
    if part.low is not None:
        bounds.append(f"j.id >= {part.low}")
    if part.high is not None:
        bounds.append(f"j.id < {part.high}")
    shown = ", ".join(f"j.{name}" for name in columns)
    connection = await connect(part.dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            sql = f"SELECT {shown} FROM items j WHERE {' AND '.join(bounds)}"
            cursor = await connection.cursor(sql)
            while rows := await cursor.fetch(BATCH_ROWS):
                yield rows
    finally:
        connection.terminate()


async def connect(dsn: str, deadline_s: float | None = None) -> Any:
    """A connection whose text is the same on every server; None: statements may take long."""
    settings = {"application_name": "leveret pipeline", "timezone": "UTC", "jit": "off"}
    return await asyncpg.connect(
        dsn, timeout=CONNECT_S, command_timeout=deadline_s, server_settings=settings
    )
