"""The dead jobs of a topic in its table: shown by pages of bounded size, changed in slices.

A topic may have millions: what is done with all of them is done by statements that end well within
the deadline of a shard. Those that die meanwhile are left alone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from leveret.job_model import BATCH_BYTES_MAX, Job
from leveret.job_service.shards.memory import Topic
from leveret.job_service.shards.moments import moment
from leveret.job_service.shards.tables import Time, job

SLICE: Final = 1_000  # jobs that one statement changes
_DEAD: Final = "namespace = $1 AND topic = $2 AND status = 'dead'"
_LIST: Final = (
    "SELECT i.* FROM (SELECT id, octet_length(payload) AS bytes,"
    " sum(octet_length(payload)) OVER (ORDER BY id) AS bytes_so_far FROM"
    f" (SELECT id, payload FROM items WHERE {_DEAD} AND id > $3 ORDER BY id LIMIT $4) AS d) AS f"
    f" JOIN items i ON i.id = f.id WHERE f.bytes_so_far - f.bytes < {BATCH_BYTES_MAX}"
    " ORDER BY i.id"
)
_LAST: Final = f"SELECT id FROM items WHERE {_DEAD} ORDER BY id DESC LIMIT 1"
_NEXT: Final = f"SELECT id FROM items WHERE {_DEAD} AND id > $3 AND id <= $4 ORDER BY id LIMIT $5"
_REDRIVE: Final = "SELECT leveret_redrive($1, $2, $3::BIGINT[], $4) AS count"
_DELETE: Final = (
    f"WITH gone AS (DELETE FROM items WHERE {_DEAD} AND id = ANY($3::BIGINT[]) RETURNING id)"
    " SELECT count(*) AS count FROM gone"
)

# A statement where a topic lives, with the topic as its first two arguments.
Ask = Callable[..., Awaitable[list[Any]]]


class DeadSet:
    """The dead jobs of all topics."""

    def __init__(self, read: Ask, clock: Time) -> None:
        self._read = read
        self._clock = clock

    async def listed(self, topic: Topic, after_id: int, limit: int) -> list[Job]:
        """In the order of their ids, from beyond one; up to a number of bytes."""
        rows = await self._read(topic, _LIST, after_id, limit)
        return [job(row, self._clock.now_ms()) for row in rows]

    async def redrive(self, topic: Topic, ids: list[int] | None) -> int:
        """Make some or all ready again. How many."""
        now = moment(self._clock.now_ms())
        return await self._change(topic, ids, _REDRIVE, now)

    async def delete(self, topic: Topic, ids: list[int] | None) -> int:
        return await self._change(topic, ids, _DELETE)

    async def _change(
        self, topic: Topic, ids: list[int] | None, sql: str, *arguments: object
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
