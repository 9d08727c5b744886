"""A query whose reader is slow to start."""

from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from leveret.pipeline.flows.archive import STARTS, run_with_restarts
from leveret.pipeline.query_progress import QueryMonitor

SLOW = "Python worker failed to connect back"


class Query:
    """One run of a query: rows by batch, and what it ends with."""

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
    watch = QueryMonitor(lambda progress: None, lambda: None)
    try:
        return run_with_restarts(lambda: cast(StreamingQuery, left.pop(0)), watch).rows
    finally:
        assert all(query.is_stopped for query in queries if query not in left)


def test_a_slow_start_is_tried_again_and_its_rows_count() -> None:
    assert run(Query({0: 5, 1: 7}, SLOW), Query({1: 7, 2: 3}, None)) == 15


def test_it_is_not_tried_for_ever_nor_for_other_faults() -> None:
    with pytest.raises(StreamingQueryException, match="connect back"):
        run(*(Query({}, SLOW) for _ in range(STARTS)))
    with pytest.raises(StreamingQueryException, match="gone"):
        run(Query({}, "offsets 0 to 4 are gone"))


def test_a_query_that_gets_on_is_tried_as_often_as_a_new_one() -> None:
    assert run(*(Query({n: 1}, SLOW) for n in range(3 * STARTS)), Query({}, None)) == 3 * STARTS
