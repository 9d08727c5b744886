"""How far a streaming query is: rows, rate, and how much its streams are ahead."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1


@dataclass(frozen=True)
class Progress:
    """One look at a flow that runs."""

    rows: int
    rate: float  # rows a second, since the last look
    lag: int | None  # messages that the broker has and the query has not read; None: not known
    seconds: float

    def line(self) -> str:
        lag = "" if self.lag is None else f", {self.lag:,} behind"
        return f"{self.rows:,} rows, {self.rate:,.0f}/s{lag}, {self.seconds:.0f} s"

    def place(self) -> object:
        return self.rows


OnProgress = Callable[[Progress], None]


class Watch:
    """Looks at a query now and then until it ends."""

    def __init__(self, on_progress: OnProgress, ends: Callable[[], dict[str, int] | None]) -> None:
        self._on_progress = on_progress
        self._ends = ends  # the end of each stream at the broker
        self._started_s = self._looked_s = time.monotonic()
        self._batches: dict[int, int] = {}  # rows by batch
        self._position: dict[str, int] = {}
        self._rows = 0

    @property
    def rows(self) -> int:
        """Of all queries that were looked at: a batch that runs again has the same number."""
        return sum(self._batches.values())

    def until_it_ends(self, query: StreamingQuery) -> Progress:
        """Tell of the query until it is over; raises what it ended with."""
        try:
            while not query.awaitTermination(POLL_S):
                self._note(query.recentProgress)
                self._on_progress(self._look())
        except StreamingQueryException:
            self._note(query.recentProgress)
            raise
        self._note(query.recentProgress)
        last = self._look()
        self._on_progress(last)
        return last

    def _note(self, batches: list[Any]) -> None:
        for batch in batches:
            self._batches[batch["batchId"]] = batch["numInputRows"]
            if batch["sources"] and batch["sources"][0]["endOffset"]:
                end = batch["sources"][0]["endOffset"]
                self._position = json.loads(end) if isinstance(end, str) else end

    def _look(self) -> Progress:
        now_s, rows = time.monotonic(), self.rows
        rate = (rows - self._rows) / max(now_s - self._looked_s, 1e-6)
        self._rows, self._looked_s = rows, now_s
        return Progress(rows, rate, self._lag(), now_s - self._started_s)

    def _lag(self) -> int | None:
        ends = self._ends() if self._position else None
        if ends is None:
            return None
        return sum(max(end - self._position.get(name, 0), 0) for name, end in ends.items())
