"""The state of each table of a lake: how far it is behind its stream, and what waits to be done.

Everything comes from the files of the lake and from the broker. Spark is not started.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leveret.clock import Clock
from leveret.errors import PreconditionFailedError
from leveret.lake.layout import BAD, QUARANTINED, REFINED, SILVER, Lake, read_state
from leveret.lake.partitions import partition_of
from leveret.pipeline.environment import Environment
from leveret.pipeline.leftovers import archive_lock, find_leftovers
from leveret.pipeline.locks import is_locked
from pyspark_leveret.client import NOT_FOUND, Broker
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import parse_options


@dataclass(frozen=True)
class TableStatus:
    """The state of one stream of a table. None means unknown."""

    table: str
    stream: str
    offset: int | None  # the next message to archive
    lag: int | None  # messages at the broker that are not archived
    lag_s: float | None  # age of the first of them; 0 if there is none
    archived_at: str | None  # when the last batch was committed
    is_running: bool | None  # an archive on this machine
    files: int
    bytes: int
    leftovers: int  # files of killed batches, for compact
    refined: int | None  # archived messages that refine has read; None if it never ran
    bad: int | None  # messages in quarantine


def lake_status(environment: Environment) -> list[TableStatus]:
    """Return the state of every bronze table of the vhost."""
    lake = Lake(environment.lake_path)
    broker = Broker(parse_options(environment.options(retrySeconds=0)))
    found: list[TableStatus] = []
    for table, stream in lake.streams(environment.vhost).items():
        found += _table(lake, table, stream, broker)
    return found


def _table(lake: Lake, table: str, stream: str, broker: Broker) -> Iterator[TableStatus]:
    position: Mapping[str, int | None]
    try:
        history = lake.history(table)
        files, position = history.files, history.position
        time_s = lake.archived_at_s(table, history)
    except PreconditionFailedError:  # the checkpoint is missing, which has the position
        files, position, time_s = lake.bronze_files(table), {stream: None}, None
    sizes = [
        (partition_of(path.parent)[0], path.stat().st_size) for path in files if path.is_file()
    ]
    refined = read_state(lake.folder(SILVER, table) / REFINED)
    bad = read_state(lake.folder(BAD, table) / QUARANTINED)
    running = is_locked(archive_lock(lake, table))
    leftovers = 0 if running else len(find_leftovers(lake, table))
    for name, offset in sorted(position.items()):
        own = [size for each, size in sizes if each == name]
        lag, lag_s = (None, None) if offset is None else _lag(broker, name, offset)
        yield TableStatus(
            table=table,
            stream=name,
            offset=offset,
            lag=lag,
            lag_s=lag_s,
            archived_at=None if time_s is None else _text(time_s),
            is_running=running,
            files=len(own),
            bytes=sum(own),
            leftovers=leftovers,
            refined=_sum(refined, name) if refined else None,
            bad=_sum(bad, name) if refined else None,
        )


def _lag(broker: Broker, stream: str, offset: int) -> tuple[int | None, float | None]:
    """Return the messages after an offset, and the age of the first; None if it is unknown."""
    try:
        found = broker.ask("GET", broker.path("streams", stream))
        lag = max(found["end_offset"] - max(offset, found["first_offset"]), 0)
        if not lag:
            return 0, 0.0
        path = broker.path("streams", stream, "messages")
        query = {"from": offset, "count": 1, "truncate": 0}
        first: list[dict[str, Any]] = broker.ask("GET", path, None, **query)["items"]
    except LoginRefusedError:
        raise
    except BrokerError as error:
        if error.status in (0, NOT_FOUND):  # the broker is away, or the stream has been deleted
            return None, None
        raise
    now_ms = Clock().now_ms()
    return lag, max(now_ms - first[0]["timestamp_ms"], 0) / 1000 if first else None


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(" ", "seconds").removesuffix("+00:00")


def _sum(counts: dict[str, int], stream: str) -> int:
    """Return the messages of a stream from counts by `stream date`."""
    return sum(count for place, count in counts.items() if place.rpartition(" ")[0] == stream)
