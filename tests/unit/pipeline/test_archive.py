"""Restarts of a query whose reader starts too slowly."""

from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from leveret.pipeline.flows.archive import STARTS, run_with_restarts
from leveret.pipeline.query_progress import QueryMonitor

SLOW = "Python worker failed to connect back"


class Query:
    """One run of a query: rows by batch, and the error that ends it."""

    def __init__(self, batches: dict[int, int], fault: str | None) -> None:
        self.recentProgress: list[Any] = [
            {"batchId": number, "numInputRows": rows, "sources": []}
            for number, rows in batches.items()
        ]
        self.is_stopped = False
        self._fault = fault

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802
        if self._fault is not None:
            raise StreamingQueryException(self._fault)
        return True

    def stop(self) -> None:
        self.is_stopped = True


def run(*queries: Query) -> int:
    left = list(queries)
    monitor = QueryMonitor(lambda progress: None, lambda: None)
    try:
        return run_with_restarts(lambda: cast(StreamingQuery, left.pop(0)), monitor).rows
    finally:
        assert all(query.is_stopped for query in queries if query not in left)


def test_query_is_restarted_after_a_slow_start_and_its_rows_count() -> None:
    assert run(Query({0: 5, 1: 7}, SLOW), Query({1: 7, 2: 3}, None)) == 15


def test_restarts_are_limited_and_only_for_slow_starts() -> None:
    with pytest.raises(StreamingQueryException, match="connect back"):
        run(*(Query({}, SLOW) for _ in range(STARTS)))
    with pytest.raises(StreamingQueryException, match="gone"):
        run(Query({}, "offsets 0 to 4 are gone"))


def test_progress_resets_the_limit_of_restarts() -> None:
    assert run(*(Query({n: 1}, SLOW) for n in range(3 * STARTS)), Query({}, None)) == 3 * STARTS
