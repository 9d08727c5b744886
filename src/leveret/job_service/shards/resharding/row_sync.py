"""Makes the rows of a topic in one database the same as in another, and compares them.

Two databases are compared by sums of hashes over ranges of job ids. Ranges with equal sums are not
read. In the other ranges the hash of each row is compared, and only rows that differ are sent, in
the binary format of PostgreSQL.

Idempotency keys that a node may delete by itself at any time do not count.
"""

import asyncio
import io
from dataclasses import dataclass
from typing import Any, Final

from leveret.job_service.shards.topic_name import TopicName

BATCH_ROWS: Final = 1_000
BUCKETS: Final = 1_024  # ranges of ids that are compared
KEYS_MARGIN: Final = "INTERVAL '5 minutes'"  # a key that is kept for longer is not deleted now
OF_TOPIC: Final = "namespace = $1 AND topic = $2"
# For rows that are found by their keys. Written with `||` so that the planner does not read the
# whole topic.
OF_TOPIC_BY_KEY: Final = "(namespace || '') = $1 AND (topic || '') = $2"
KEY_COLUMNS: Final = {
    "items": "id",
    "keys": "idempotency_key",
}  # large tables, and the column that names a row
TABLES: Final = ("items", "keys", "turns", "rounds", "schedules", "ack_nodes")
_KEPT: Final = f"kept_until > now() + {KEYS_MARGIN}"
# The lowest id whose mark a log may need.
_MARKS_FROM: Final = (
    "SELECT least(max(floor), (SELECT min(low) FROM origins WHERE lost_high IS NOT NULL))"
    " FROM floors"
)
_HASH: Final = "hash_record_extended(r, 0)"


@dataclass(frozen=True)
class TopicRows:
    """The rows of a topic in one table, which queries call `r`."""

    table: str
    topic: TopicName

    @property
    def where(self) -> str:
        return f"{OF_TOPIC} AND {_KEPT}" if self.table == "keys" else OF_TOPIC

    @property
    def by_key(self) -> str:
        own = f"namespace = $1 AND {OF_TOPIC_BY_KEY}" if self.table == "keys" else OF_TOPIC_BY_KEY
        return f"{own} AND {self.key} = ANY($3)"

    @property
    def key(self) -> str:
        return KEY_COLUMNS[self.table]


@dataclass(frozen=True)
class RowsChecksum:
    """Row count and checksum, to compare two copies of a table."""

    count: int
    checksum: int

    def shown(self) -> str:
        return f"{self.count} rows with checksum {self.checksum}"


async def checksum_rows(database: Any, rows: TopicRows) -> RowsChecksum:
    """Return count and checksum of the rows of a topic in one table."""
    found = await database.fetchrow(
        f"SELECT count(*) AS n, coalesce(sum({_HASH}), 0) AS s FROM {rows.table} r"
        f" WHERE {rows.where}",
        *rows.topic,
    )
    return RowsChecksum(found["n"], int(found["s"]))


async def sync_keyed_table(source: Any, target: Any, rows: TopicRows) -> int:
    """Make the rows of a table with a key the same; return how many were sent or removed."""
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
    for start in range(0, len(gone), BATCH_ROWS):
        await _replace(target, rows, gone[start : start + BATCH_ROWS], b"")
    for start in range(0, len(changed), BATCH_ROWS):
        some = changed[start : start + BATCH_ROWS]
        await _replace(target, rows, some, await _read(source, rows, some))
    return len(changed) + len(gone)


async def _shift(source: Any, target: Any, rows: TopicRows) -> int:
    """Return by how many bits an id is shifted to get the number of its range."""
    # `+ 0` avoids the index of ids, which has the ids of all topics.
    sql = f"SELECT min(id + 0) AS low, max(id + 0) AS high FROM {rows.table} r WHERE {rows.where}"
    found = await asyncio.gather(*(each.fetchrow(sql, *rows.topic) for each in (source, target)))
    known = [row for row in found if row["low"] is not None]
    if not known:
        return 0
    span = max(row["high"] for row in known) - min(row["low"] for row in known)
    return int(span // BUCKETS).bit_length()


async def _bucket_sums(database: Any, rows: TopicRows, shift: int) -> dict[int, tuple[int, int]]:
    found = await database.fetch(
        f"SELECT id >> $3 AS bucket, count(*) AS n, sum({_HASH}) AS s FROM {rows.table} r"
        f" WHERE {rows.where} GROUP BY 1",
        *rows.topic,
        shift,
    )
    return {row["bucket"]: (row["n"], int(row["s"])) for row in found}


async def _hashes(database: Any, rows: TopicRows, shift: int, buckets: list[int]) -> dict[Any, int]:
    found = await database.fetch(
        f"SELECT {rows.key} AS key, {_HASH} AS hash FROM {rows.table} r"
        f" WHERE {rows.where} AND id >> $3 = ANY($4::BIGINT[])",
        *rows.topic,
        shift,
        buckets,
    )
    return {row["key"]: row["hash"] for row in found}


async def _read(source: Any, rows: TopicRows, keys: list[Any]) -> bytes:
    sql = f"SELECT * FROM {rows.table} WHERE {rows.by_key}"
    return await read_binary(source, sql, *rows.topic, keys)


async def _replace(target: Any, rows: TopicRows, keys: list[Any], data: bytes) -> None:
    async with target.transaction():
        await target.execute("SELECT leveret_require($1, $2, 'settling')", *rows.topic)
        await target.execute(f"DELETE FROM {rows.table} WHERE {rows.by_key}", *rows.topic, keys)
        if data:
            await insert_binary(target, rows.table, data)


async def sync_small_table(source: Any, target: Any, rows: TopicRows) -> int:
    """Replace the rows of a small table if they differ; return how many there are."""
    here, there = await asyncio.gather(checksum_rows(source, rows), checksum_rows(target, rows))
    if here == there:
        return 0
    data = await read_binary(source, f"SELECT * FROM {rows.table} WHERE {OF_TOPIC}", *rows.topic)
    async with target.transaction():
        await target.execute("SELECT leveret_require($1, $2, 'settling')", *rows.topic)
        await target.execute(f"DELETE FROM {rows.table} WHERE {OF_TOPIC}", *rows.topic)
        await insert_binary(target, rows.table, data)
    return max(here.count, there.count)


async def copy_marks(source: Any, target: Any, slot: int) -> int:
    """Copy the flush marks of a topic's hash; return how many were missing.

    Marks belong to the hash of a topic and are only ever added.
    """
    missing = await missing_marks(source, target, slot)
    for start in range(0, len(missing), BATCH_ROWS):
        sql = "SELECT * FROM flush_marks WHERE id = ANY($1::BIGINT[])"
        await add_marks(target, await read_binary(source, sql, missing[start : start + BATCH_ROWS]))
    return len(missing)


async def missing_marks(source: Any, target: Any, slot: int) -> list[int]:
    """Return the ids of marks that the target lacks, apart from those that no log needs there."""
    sql = f"SELECT id, is_undone FROM flush_marks WHERE slot = $1 AND id >= ({_MARKS_FROM})"
    here, there = await asyncio.gather(source.fetch(sql, slot), target.fetch(sql, slot))
    known = {(row["id"], row["is_undone"]) for row in there}
    known |= {(row["id"], False) for row in there}
    floor = await target.fetchval(_MARKS_FROM)
    return sorted(
        row["id"]
        for row in here
        if row["id"] >= floor and (row["id"], row["is_undone"]) not in known
    )


async def add_marks(target: Any, data: bytes) -> None:
    """Add marks; a mark of a job that was taken back is never reset."""
    await insert_binary(
        target,
        "flush_marks",
        data,
        "(id) DO UPDATE SET is_undone = flush_marks.is_undone OR excluded.is_undone",
    )


async def read_binary(source: Any, sql: str, *arguments: object) -> bytes:
    """Return the rows of a query in the binary format of PostgreSQL."""
    found = io.BytesIO()
    await source.copy_from_query(sql, *arguments, output=found, format="binary")
    return found.getvalue()


async def insert_binary(target: Any, table: str, data: bytes, conflict: str = "DO NOTHING") -> int:
    """Insert rows through a temporary table; return how many. `conflict` handles conflicts."""
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
