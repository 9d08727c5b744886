"""Copies the rows of a topic from one database to another, and compares them.

Two databases are compared by sums of hashes over ranges of job ids: of ranges that agree nothing
more is read. Of the others the hash of each row is compared, and only rows that differ are sent.
Rows travel in PostgreSQL's own binary form, as they are.

Of idempotency keys only those count that no node may delete by itself just now.
"""

import asyncio
import io
from dataclasses import dataclass
from typing import Any, Final

from leveret.job_service.shards.memory import Topic

CARRY_ROWS: Final = 1_000
BUCKETS: Final = 1_024  # ranges of ids that are compared
KEYS_MARGIN: Final = "INTERVAL '5 minutes'"  # a key that is kept for longer is not deleted now
OWN: Final = "namespace = $1 AND topic = $2"
# For rows that are found by their keys: written so, no planner looks through the whole topic.
OWN_BY_KEY: Final = "(namespace || '') = $1 AND (topic || '') = $2"
KEYED: Final = {"items": "id", "keys": "idempotency_key"}  # large tables, by what names a row
TABLES: Final = ("items", "keys", "turns", "rounds", "schedules")
_KEPT: Final = (
    f"(kept_until > now() + {KEYS_MARGIN} OR EXISTS (SELECT FROM items i WHERE i.id = r.id))"
)
_HASH: Final = "hash_record_extended(r, 0)"


@dataclass(frozen=True)
class Rows:
    """The rows of a topic in one table, called `r`."""

    table: str
    topic: Topic

    @property
    def where(self) -> str:
        return f"{OWN} AND {_KEPT}" if self.table == "keys" else OWN

    @property
    def by_key(self) -> str:
        own = f"namespace = $1 AND {OWN_BY_KEY}" if self.table == "keys" else OWN_BY_KEY
        return f"{own} AND {self.key} = ANY($3)"

    @property
    def key(self) -> str:
        return KEYED[self.table]


@dataclass(frozen=True)
class Sums:
    """What two databases that hold the same rows agree in."""

    count: int
    checksum: int

    def told(self) -> str:
        return f"{self.count} rows with checksum {self.checksum}"


async def sums(database: Any, rows: Rows) -> Sums:
    """Of the rows of a topic in one table."""
    found = await database.fetchrow(
        f"SELECT count(*) AS n, coalesce(sum({_HASH}), 0) AS s FROM {rows.table} r"
        f" WHERE {rows.where}",
        *rows.topic,
    )
    return Sums(found["n"], int(found["s"]))


# ---- tables whose rows have a key


async def carry_keyed(source: Any, target: Any, rows: Rows) -> int:
    """Make a table's rows the same; how many were sent or removed."""
    shift = await _shift(source, target, rows)
    here, there = await asyncio.gather(
        _bucket_sums(source, rows, shift), _bucket_sums(target, rows, shift)
    )
    unequal = [
        bucket for bucket in here.keys() | there.keys() if here.get(bucket) != there.get(bucket)
    ]
    if not unequal:
        return 0
    mine, theirs = await asyncio.gather(
        _hashes(source, rows, shift, unequal), _hashes(target, rows, shift, unequal)
    )
    changed = sorted(key for key, found in mine.items() if theirs.get(key) != found)
    gone = [key for key in theirs if key not in mine]
    for start in range(0, len(gone), CARRY_ROWS):
        await _replace(target, rows, gone[start : start + CARRY_ROWS], b"")
    for start in range(0, len(changed), CARRY_ROWS):
        some = changed[start : start + CARRY_ROWS]
        await _replace(target, rows, some, await _read(source, rows, some))
    return len(changed) + len(gone)


async def _shift(source: Any, target: Any, rows: Rows) -> int:
    """By how many bits an id is shifted to be the number of its range."""
    # Not by the index of ids, which has those of all topics.
    sql = f"SELECT min(id + 0) AS low, max(id + 0) AS high FROM {rows.table} r WHERE {rows.where}"
    found = await asyncio.gather(*(each.fetchrow(sql, *rows.topic) for each in (source, target)))
    known = [row for row in found if row["low"] is not None]
    if not known:
        return 0
    span = max(row["high"] for row in known) - min(row["low"] for row in known)
    return int(span // BUCKETS).bit_length()


async def _bucket_sums(database: Any, rows: Rows, shift: int) -> dict[int, tuple[int, int]]:
    found = await database.fetch(
        f"SELECT id >> $3 AS bucket, count(*) AS n, sum({_HASH}) AS s FROM {rows.table} r"
        f" WHERE {rows.where} GROUP BY 1",
        *rows.topic,
        shift,
    )
    return {row["bucket"]: (row["n"], int(row["s"])) for row in found}


async def _hashes(database: Any, rows: Rows, shift: int, buckets: list[int]) -> dict[Any, int]:
    found = await database.fetch(
        f"SELECT {rows.key} AS key, {_HASH} AS hash FROM {rows.table} r"
        f" WHERE {rows.where} AND id >> $3 = ANY($4::BIGINT[])",
        *rows.topic,
        shift,
        buckets,
    )
    return {row["key"]: row["hash"] for row in found}


async def _read(source: Any, rows: Rows, keys: list[Any]) -> bytes:
    sql = f"SELECT * FROM {rows.table} WHERE {rows.by_key}"
    return await read_binary(source, sql, *rows.topic, keys)


async def _replace(target: Any, rows: Rows, keys: list[Any], data: bytes) -> None:
    async with target.transaction():
        await target.execute("SELECT leveret_require($1, $2, 'settling')", *rows.topic)
        await target.execute(f"DELETE FROM {rows.table} WHERE {rows.by_key}", *rows.topic, keys)
        if data:
            await insert_binary(target, rows.table, data)


# ---- small tables


async def carry_whole(source: Any, target: Any, rows: Rows) -> int:
    """Replace a table's rows if they differ; how many there are then."""
    here, there = await asyncio.gather(sums(source, rows), sums(target, rows))
    if here == there:
        return 0
    data = await read_binary(source, f"SELECT * FROM {rows.table} WHERE {OWN}", *rows.topic)
    async with target.transaction():
        await target.execute("SELECT leveret_require($1, $2, 'settling')", *rows.topic)
        await target.execute(f"DELETE FROM {rows.table} WHERE {OWN}", *rows.topic)
        await insert_binary(target, rows.table, data)
    return max(here.count, there.count)


# ---- flush marks, which belong to hashes of topics and are only ever added


async def carry_marks(source: Any, target: Any, slot: int) -> int:
    """Add to a database the marks of a topic's hash; how many were missing."""
    missing = await missing_marks(source, target, slot)
    for start in range(0, len(missing), CARRY_ROWS):
        sql = "SELECT * FROM flush_marks WHERE id = ANY($1::BIGINT[])"
        await add_marks(target, await read_binary(source, sql, missing[start : start + CARRY_ROWS]))
    return len(missing)


async def missing_marks(source: Any, target: Any, slot: int) -> list[int]:
    """The ids of marks that a database should have and has not; none that it may forget."""
    sql = (
        "SELECT id, is_undone FROM flush_marks WHERE slot = $1"
        " AND id >= (SELECT max(floor) FROM floors)"
    )
    here, there = await asyncio.gather(source.fetch(sql, slot), target.fetch(sql, slot))
    known = {(row["id"], row["is_undone"]) for row in there}
    known |= {(row["id"], False) for row in there}
    floor = await target.fetchval("SELECT max(floor) FROM floors")
    return sorted(
        row["id"]
        for row in here
        if row["id"] >= floor and (row["id"], row["is_undone"]) not in known
    )


async def add_marks(target: Any, data: bytes) -> None:
    """Add marks; one that says that a job was taken back stands."""
    await insert_binary(
        target,
        "flush_marks",
        data,
        "(id) DO UPDATE SET is_undone = flush_marks.is_undone OR excluded.is_undone",
    )


# ---- rows as bytes


async def read_binary(source: Any, sql: str, *arguments: object) -> bytes:
    """The rows of a query in PostgreSQL's binary form."""
    found = io.BytesIO()
    await source.copy_from_query(sql, *arguments, output=found, format="binary")
    return found.getvalue()


async def insert_binary(target: Any, table: str, data: bytes, conflict: str = "DO NOTHING") -> int:
    """Insert rows by a table of the moment; how many. Where they conflict: as `conflict` says."""
    async with target.transaction():
        await target.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS carried_{table}"
            f" (LIKE {table} INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
        )
        await target.copy_to_table(f"carried_{table}", source=io.BytesIO(data), format="binary")
        done: str = await target.execute(
            f"INSERT INTO {table} SELECT * FROM carried_{table} ON CONFLICT {conflict}"
        )
        await target.execute(f"TRUNCATE carried_{table}")
    return int(done.rpartition(" ")[2])
