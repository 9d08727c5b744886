"""Copies jobs to the shards that their topics will move to, while the topics are still served.

Many processes share this work. Each copies ranges: the jobs of a topic with ids in a range. A range
can be copied again; rows that are there stay as they are. Changes during the copying are copied
when the topic is frozen (`TopicMover.carry`). Rows are added only while the topic is `arriving`, so
that a late process adds nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import asyncpg

from leveret.job_service.shards.resharding.row_sync import (
    OF_TOPIC,
    OF_TOPIC_BY_KEY,
    insert_binary,
    read_binary,
)
from leveret.job_service.shards.resharding.shard_reader import connect
from leveret.job_service.shards.sql.loader import TOPIC_STOPPED
from leveret.job_service.shards.topic_name import TopicName

BATCH_ROWS: Final = 1_000
_RANGE: Final = "($3::BIGINT IS NULL OR id >= $3) AND ($4::BIGINT IS NULL OR id < $4)"


class CopyRange(NamedTuple):
    """Jobs of a topic with ids from `low` to before `high`; None: no bound."""

    source: str  # dsn
    target: str
    namespace: str
    topic: str
    low: int | None
    high: int | None


async def split_topic(
    database: Any, source: str, target: str, topic: TopicName, rows: int
) -> list[CopyRange]:
    """Split the jobs of a topic into ranges of so many rows."""
    found = await database.fetch(
        "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM items"
        f" WHERE {OF_TOPIC}) AS numbered WHERE n > 1 AND n % $3 = 1 ORDER BY id",
        *topic,
        max(rows, 2),
    )
    bounds = [None, *(row["id"] for row in found), None]
    return [CopyRange(source, target, *topic, low, high) for low, high in pairwise(bounds)]


def copy_ranges(parts: Iterable[CopyRange], batch_rows: int, rate: float | None) -> int:
    """Copy ranges one after the other, at most `rate` jobs a second; return how many were new."""
    return asyncio.run(_copy_parts(parts, batch_rows, rate))


async def _copy_parts(parts: Iterable[CopyRange], batch_rows: int, rate: float | None) -> int:
    opened: dict[str, Any] = {}
    copied = 0
    try:
        for part in parts:
            for dsn in (part.source, part.target):
                if dsn not in opened:
                    opened[dsn] = await connect(dsn)
            copied += await _copy(opened[part.source], opened[part.target], part, batch_rows, rate)
    finally:
        for connection in opened.values():
            connection.terminate()
    return copied


async def _copy(
    source: Any, target: Any, part: CopyRange, batch_rows: int, rate: float | None
) -> int:
    topic = part.namespace, part.topic
    rows = await source.fetch(
        f"SELECT id FROM items WHERE {OF_TOPIC} AND {_RANGE} ORDER BY id",
        *topic,
        part.low,
        part.high,
    )
    copied = 0
    for ids in _batches([row["id"] for row in rows], batch_rows):
        begun_s = time.monotonic()
        data = await read_binary(
            source, f"SELECT * FROM items WHERE {OF_TOPIC_BY_KEY} AND id = ANY($3)", *topic, ids
        )
        added = await _add(target, topic, data)
        if added is None:
            return copied  # the topic is not arriving any more
        copied += added
        if rate is not None:
            await asyncio.sleep(max(len(ids) / rate - (time.monotonic() - begun_s), 0))
    return copied


async def _add(target: Any, topic: TopicName, data: bytes) -> int | None:
    """Return how many rows were new; None where the topic is not arriving any more."""
    try:
        async with target.transaction():
            await target.execute("SELECT leveret_require($1, $2, 'arriving')", *topic)
            return await insert_binary(target, "items", data)
    except asyncpg.PostgresError as error:
        if error.sqlstate != TOPIC_STOPPED:
            raise
        return None


def _batches(ids: list[int], rows: int) -> Iterator[list[int]]:
    for start in range(0, len(ids), rows):
        yield ids[start : start + rows]
