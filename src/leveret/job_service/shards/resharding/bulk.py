"""Copies jobs of topics that are still served to the shards that they will move to.

This is work for many processes at once, each with parts of its own: the jobs of a topic in a range
of ids. A part can be copied again: what is there stays as it is. What changes while it is copied is
made right when the topic is frozen (`Mover.carry`); rows are added only while the topic is
`arriving`, so that a task that comes too late adds nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import asyncpg

from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.resharding.carrying import (
    OWN,
    OWN_BY_KEY,
    insert_binary,
    read_binary,
)
from leveret.job_service.shards.resharding.reading import connect
from leveret.job_service.shards.sql.loader import TOPIC_STOPPED

BATCH_ROWS: Final = 1_000
_RANGE: Final = "($3::BIGINT IS NULL OR id >= $3) AND ($4::BIGINT IS NULL OR id < $4)"


class Part(NamedTuple):
    """Jobs of a topic from `low` on and before `high`; None: no bound."""

    source: str  # dsn
    target: str
    namespace: str
    topic: str
    low: int | None
    high: int | None


async def parts_of(database: Any, source: str, target: str, topic: Topic, rows: int) -> list[Part]:
    """The jobs of a topic in parts of so many."""
    found = await database.fetch(
        "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM items"
        f" WHERE {OWN}) AS numbered WHERE n > 1 AND n % $3 = 1 ORDER BY id",
        *topic,
        max(rows, 2),
    )
    bounds = [None, *(row["id"] for row in found), None]
    return [Part(source, target, *topic, low, high) for low, high in pairwise(bounds)]


def copy_parts(parts: Iterable[Part], batch_rows: int, rate: float | None) -> int:
    """Copy parts one after the other, at most so many jobs a second; how many were new."""
    return asyncio.run(_copy_parts(parts, batch_rows, rate))


async def _copy_parts(parts: Iterable[Part], batch_rows: int, rate: float | None) -> int:
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


async def _copy(source: Any, target: Any, part: Part, batch_rows: int, rate: float | None) -> int:
    topic = part.namespace, part.topic
    rows = await source.fetch(
        f"SELECT id FROM items WHERE {OWN} AND {_RANGE} ORDER BY id", *topic, part.low, part.high
    )
    copied = 0
    for ids in _batches([row["id"] for row in rows], batch_rows):
        begun_s = time.monotonic()
        data = await read_binary(
            source, f"SELECT * FROM items WHERE {OWN_BY_KEY} AND id = ANY($3)", *topic, ids
        )
        added = await _add(target, topic, data)
        if added is None:
            return copied  # it is somebody else's by now
        copied += added
        if rate is not None:
            await asyncio.sleep(max(len(ids) / rate - (time.monotonic() - begun_s), 0))
    return copied


async def _add(target: Any, topic: Topic, data: bytes) -> int | None:
    """How many rows were new; None where the topic is not arriving any more."""
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
