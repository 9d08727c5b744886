"""The dead jobs of a topic in its table: listed in pages of bounded size, changed in slices.

A topic may have millions of dead jobs. A change of all of them uses many statements, each of which
ends well within the deadline of a shard. Jobs that die meanwhile are left alone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from leveret.job_model import BATCH_BYTES_MAX, Job
from leveret.job_service.shards.tables import SHOWN_BYTES, Tables, read_job
from leveret.job_service.shards.topic_name import TopicName

SLICE: Final = 1_000  # jobs that one statement changes
_DEAD: Final = "namespace = $1 AND topic = $2 AND status = 'dead'"
_LIST: Final = (
    "SELECT i.* FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM"
    f" (SELECT id, {SHOWN_BYTES} AS bytes FROM items WHERE {_DEAD} AND id > $3 ORDER BY id"
    " LIMIT $4) AS d) AS f"
    f" JOIN items i ON i.id = f.id WHERE f.bytes_so_far - f.bytes < {BATCH_BYTES_MAX}"
    " ORDER BY i.id"
)
_LAST: Final = f"SELECT id FROM items WHERE {_DEAD} ORDER BY id DESC LIMIT 1"
_NEXT: Final = f"SELECT id FROM items WHERE {_DEAD} AND id > $3 AND id <= $4 ORDER BY id LIMIT $5"
_REDRIVE: Final = "SELECT leveret_redrive($1, $2, $3::BIGINT[], coalesce($4, now())) AS count"
_DELETE: Final = (
    f"WITH gone AS (DELETE FROM items WHERE {_DEAD} AND id = ANY($3::BIGINT[]) RETURNING id)"
    " SELECT count(*) AS count FROM gone"
)

# Runs a statement on the shard of a topic, with the topic as its first two arguments.
Ask = Callable[..., Awaitable[list[Any]]]


class DeadJobs:
    """The dead jobs of all topics."""

    def __init__(self, read: Ask, read_page: Ask, tables: Tables) -> None:
        self._read = read
        self._read_page = read_page
        self._tables = tables

    async def list_dead(self, topic: TopicName, after_id: int, limit: int) -> list[Job]:
        """Return dead jobs by id, starting after an id, up to a number of bytes."""
        rows = await self._read_page(topic, _LIST, after_id, limit)
        return [read_job(row) for row in rows]

    async def redrive(self, topic: TopicName, ids: list[int] | None) -> int:
        """Make some or all dead jobs ready again; return how many."""
        return await self._change(topic, ids, _REDRIVE, self._tables.given_time())

    async def delete(self, topic: TopicName, ids: list[int] | None) -> int:
        return await self._change(topic, ids, _DELETE)

    async def _change(
        self, topic: TopicName, ids: list[int] | None, sql: str, *arguments: object
    ) -> int:
        if ids is not None:
            return int((await self._read(topic, sql, ids, *arguments))[0]["count"])
        count = after_id = 0
        last = await self._read(topic, _LAST)
        while last and after_id < last[0]["id"]:
            rows = await self._read(topic, _NEXT, after_id, last[0]["id"], SLICE)
            if not rows:
                break
            after_id = rows[-1]["id"]
            some = [row["id"] for row in rows]
            count += int((await self._read(topic, sql, some, *arguments))[0]["count"])
        return count
