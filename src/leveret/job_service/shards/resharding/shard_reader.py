"""Reads the jobs of shards in bulk, with blocking calls, for programs beside the service.

A read is split into ranges of job ids, so that many processes can share it. Each range is read in
batches by a cursor, so that a process holds one batch at a time. The ranges cover all ids: jobs
that are enqueued later are in the last range. A shard may hold rows of a topic that is moving to it
or has left it (`topics.state`); `IS_COUNTED` leaves them out, since another shard has them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from leveret.errors import JobsUnavailableError

CONNECT_S: Final = 10.0
BATCH_ROWS: Final = 2_000
# Whether a row j counts on this shard: its topic is here, and not arriving or moved away.
IS_COUNTED: Final = (
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


class IdRange(NamedTuple):
    """The jobs of a shard with ids from `low` to before `high`; None: no bound."""

    shard: int
    dsn: str
    low: int | None
    high: int | None


def split_shards(dsns: Sequence[str], where: str, rows: int) -> list[IdRange]:
    """Split all shards into ranges of about `rows` jobs that fulfil a condition."""

    async def work() -> list[IdRange]:
        bounds = await asyncio.gather(*(_bounds(dsn, where, rows) for dsn in dsns))
        return [
            IdRange(shard, dsn, low, high)
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
    """Return the ids at which a new range begins."""
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


def read_batches(part: IdRange, columns: Sequence[str], where: str) -> Iterator[list[Any]]:
    """Return the rows of a range, a batch at a time, without an event loop of the caller."""
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


async def _stream(part: IdRange, columns: Sequence[str], where: str) -> Any:
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
    """Connect with settings that give the same text on every server; None: no deadline."""
    settings = {"application_name": "leveret pipeline", "timezone": "UTC", "jit": "off"}
    return await asyncpg.connect(
        dsn, timeout=CONNECT_S, command_timeout=deadline_s, server_settings=settings
    )
