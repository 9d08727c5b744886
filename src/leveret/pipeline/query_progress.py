"""Watch a streaming query: rows, rate and lag behind its streams."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1


@dataclass(frozen=True)
class QueryProgress:
    """The progress of a running query."""

    rows: int
    rate: float  # rows a second since the last progress
    lag: int | None  # messages at the broker that the query has not read; None if unknown
    seconds: float

    def line(self) -> str:
        lag = "" if self.lag is None else f", {self.lag:,} behind"
        return f"{self.rows:,} rows, {self.rate:,.0f}/s{lag}, {self.seconds:.0f} s"

    def change_key(self) -> object:
        return self.rows


OnProgress = Callable[[QueryProgress], None]


class QueryMonitor:
    """Reports the progress of a query once a second until it ends."""

    def __init__(
        self,
        on_progress: OnProgress,
        ends: Callable[[], dict[str, int] | None],
        on_position: Callable[[dict[str, int]], None] = lambda position: None,
    ) -> None:
        self._on_progress = on_progress
        self._on_position = on_position  # called with the next offset of each stream
        self._ends = ends  # returns the end of each stream at the broker
        self._started_s = self._reported_s = time.monotonic()
        self._batches: dict[int, int] = {}  # rows by batch
        self._position: dict[str, int] = {}
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows of all queries. A batch that runs again has the same id and counts once."""
        return sum(self._batches.values())

    def wait(self, query: StreamingQuery) -> QueryProgress:
        """Report progress until the query ends; raise the error that ended it."""
        try:
            while not query.awaitTermination(POLL_S):
                self._note_batches(query.recentProgress)
                self._on_progress(self._progress())
        except StreamingQueryException:
            self._note_batches(query.recentProgress)
            raise
        self._note_batches(query.recentProgress)
        last = self._progress()
        self._on_progress(last)
        return last

    def _note_batches(self, batches: list[Any]) -> None:
        for batch in batches:
            self._batches[batch["batchId"]] = batch["numInputRows"]
            if batch["sources"] and batch["sources"][0]["endOffset"]:
                end = batch["sources"][0]["endOffset"]
                self._position = json.loads(end) if isinstance(end, str) else end
        if self._position:
            self._on_position(self._position)

    def _progress(self) -> QueryProgress:
        now_s, rows = time.monotonic(), self.rows
        rate = (rows - self._rows) / max(now_s - self._reported_s, 1e-6)
        self._rows, self._reported_s = rows, now_s
        return QueryProgress(rows, rate, self._lag(), now_s - self._started_s)

    def _lag(self) -> int | None:
        ends = self._ends() if self._position else None
        if ends is None:
            return None
        return sum(max(end - self._position.get(name, 0), 0) for name, end in ends.items())
