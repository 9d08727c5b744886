"""The state of each table of a lake: how far it is behind its stream, and what waits to be done.

Everything comes from the files of the lake and from the broker. Spark is not started. The position
of a table is in Spark's checkpoint, as the offsets of the last batch that the commit log has, or in
the log of a Delta table.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from leveret.clock import Clock
from leveret.lake.delta import LOG, is_delta
from leveret.lake.layout import BAD, BRONZE, SILVER, Lake, read_state, vhost_and_stream
from leveret.pipeline.environment import Environment
from leveret.pipeline.leftovers import archive_lock, find_leftovers
from leveret.pipeline.locks import is_locked
from pyspark_leveret.client import NOT_FOUND, Broker
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import parse_options

REFINED: Final = "_refined.json"
QUARANTINED: Final = "_quarantined.json"


@dataclass(frozen=True)
class TableStatus:
    """The state of one stream of a table. None means unknown."""

    table: str
    stream: str
    offset: int  # the next message to archive
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
    for table in lake.tables(BRONZE):
        if vhost_and_stream(table)[0] == environment.vhost:
            found += _table(lake, table, broker)
    return found


def read_position(checkpoint: Path) -> tuple[dict[str, int], float | None]:
    """Return the next offset of each stream, and when the last batch was committed (s)."""
    commits = _numbered(checkpoint / "bronze" / "commits")
    for number, path in sorted(commits.items(), reverse=True):
        planned = checkpoint / "bronze" / "offsets" / str(number)
        if planned.is_file():
            # The lines are a version, the settings of the batch, and one offset for each source.
            offsets = json.loads(planned.read_text().splitlines()[2])
            return {str(name): int(offset) for name, offset in offsets.items()}, _time_s(path)
    return {}, None


def _position(lake: Lake, table: str) -> tuple[dict[str, int], float | None]:
    folder = lake.folder(BRONZE, table)
    if not is_delta(folder):
        return read_position(lake.checkpoint(table))
    times_s = [_time_s(path) for path in (folder / LOG).glob("*.json")]
    return lake.history(table).position, max(times_s, default=None)


def _table(lake: Lake, table: str, broker: Broker) -> Iterator[TableStatus]:
    position, time_s = _position(lake, table)
    files = [path for path in lake.bronze_files(table) if path.is_file()]
    refined = read_state(lake.folder(SILVER, table) / REFINED)
    bad = read_state(lake.folder(BAD, table) / QUARANTINED)
    running = is_locked(archive_lock(lake, table))
    leftovers = 0 if running else len(find_leftovers(lake, table))
    for stream, offset in sorted(position.items()):
        own = [path for path in files if _stream_of(path) == stream]
        lag, lag_s = _lag(broker, stream, offset)
        yield TableStatus(
            table=table,
            stream=stream,
            offset=offset,
            lag=lag,
            lag_s=lag_s,
            archived_at=None if time_s is None else _text(time_s),
            is_running=running,
            files=len(own),
            bytes=sum(path.stat().st_size for path in own),
            leftovers=leftovers,
            refined=_sum(refined, stream) if refined else None,
            bad=_sum(bad, stream) if refined else None,
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


def _numbered(folder: Path) -> dict[int, Path]:
    paths = folder.iterdir() if folder.is_dir() else ()
    return {int(path.name): path for path in paths if path.name.isdigit()}


def _time_s(path: Path) -> float:
    return path.stat().st_mtime


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(" ", "seconds").removesuffix("+00:00")


def _sum(counts: dict[str, int], stream: str) -> int:
    """Return the messages of a stream from counts by `stream date`."""
    return sum(count for place, count in counts.items() if place.rpartition(" ")[0] == stream)


def _stream_of(path: Path) -> str:
    """Return the stream of a bronze file: its folders are `stream=…/date=…`."""
    return unquote(path.parts[-3].partition("=")[2])
