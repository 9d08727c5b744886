"""Lists of the jobs of a topic by state, page by page, for operators. They change nothing.

The cursor of a page holds the columns by which the list is ordered, of its last job. A page has at
most `BATCH_BYTES_MAX` bytes of payloads and failures, or one job more.

PostgreSQL may have to read millions of jobs for a page, of this topic or of others. A page that
takes too long is no failure of the shard.
"""

from typing import Any, Final

from leveret.job_model import BATCH_BYTES_MAX, PRIORITY_MAX, PRIORITY_MIN, Job
from leveret.job_service.list_cursor import bad_cursor, decode_cursor, encode_cursor
from leveret.job_service.shards.routing import ShardMap
from leveret.job_service.shards.tables import SHOWN_BYTES, Tables, read_job
from leveret.job_service.shards.timestamps import from_us, to_ms, to_us
from leveret.job_service.shards.topic_name import TopicName

# Longest read of a page. It is shorter than the deadline after which a shard counts as down.
LIST_MS_MAX: Final = 3_000
_ORDERS: Final = {
    "ready": ("priority", "fair_rank", "deliver_after", "id"),
    "scheduled": ("deliver_after", "id"),
    "leased": ("lease_expires_at", "id"),
}
_WHERE: Final = {
    "ready": "status = 'ready'",
    "scheduled": "status = 'scheduled' AND deliver_after > coalesce($4, now())",
    "leased": "status = 'processing'",
}
_TIMES: Final = ("deliver_after", "lease_expires_at")


def _statement(state: str, is_continued: bool) -> str:
    """Return the statement of a page.

    Its arguments are the topic, the limit, the time, and the key of the last job before the page.
    """
    order, where = ", ".join(_ORDERS[state]), _WHERE[state]
    if is_continued:
        places = ", ".join(f"${5 + number}" for number in range(len(_ORDERS[state])))
        where += f" AND ({order}) > ({places})"
    return (
        "SELECT * FROM (SELECT *, sum(bytes) OVER (ORDER BY place) AS bytes_so_far FROM"
        f" (SELECT *, row_number() OVER (ORDER BY {order}) AS place, {SHOWN_BYTES} AS bytes,"
        " coalesce($4, now()) AS asked_at FROM items"
        f" WHERE namespace = $1 AND topic = $2 AND {where} ORDER BY {order} LIMIT $3) AS f) AS g"
        f" WHERE bytes_so_far - bytes < {BATCH_BYTES_MAX} ORDER BY place"
    )


_FIRST: Final = {state: _statement(state, is_continued=False) for state in _ORDERS}
_NEXT: Final = {state: _statement(state, is_continued=True) for state in _ORDERS}


class JobLists:
    """The lists of all topics."""

    def __init__(self, routes: ShardMap, tables: Tables) -> None:
        self._routes = routes
        self._tables = tables

    async def page(
        self, topic: TopicName, state: str, limit: int, after: str
    ) -> tuple[list[Job], str]:
        """Return the jobs of a page, and the cursor of the next page."""
        key = _read_key(state, after) if after else []
        sql = (_NEXT if key else _FIRST)[state]
        rows = await self.read(topic, sql, limit, self._tables.given_time(), *key)
        jobs = [read_job(row, to_ms(row["asked_at"])) for row in rows]
        is_cut = bool(rows) and rows[-1]["bytes_so_far"] >= BATCH_BYTES_MAX
        return jobs, _write_key(state, rows[-1]) if is_cut or len(jobs) == limit else ""

    async def read(self, topic: TopicName, sql: str, *arguments: object) -> list[Any]:
        """Return the rows of a page; the first two arguments of the statement are the topic."""
        deadline_s = self._tables.settings.deadline_s
        return await self._routes.read_within(topic, deadline_s, LIST_MS_MAX, sql, *arguments)


def _write_key(state: str, row: Any) -> str:
    return encode_cursor(
        to_us(row[column]) if column in _TIMES else row[column] for column in _ORDERS[state]
    )


def _read_key(state: str, after: str) -> list[object]:
    """Return the values of the columns; JobsInvalidError if PostgreSQL cannot compare with them."""
    columns = _ORDERS[state]
    numbers = dict(zip(columns, decode_cursor(after, len(columns)), strict=True))
    if not PRIORITY_MIN <= numbers.get("priority", 0) <= PRIORITY_MAX:
        raise bad_cursor()
    try:
        return [from_us(n) if column in _TIMES else n for column, n in numbers.items()]
    except OverflowError:
        raise bad_cursor() from None
