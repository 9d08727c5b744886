"""A streaming reader of a queue, called as Spark calls it."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_leveret.errors import DataLostError
from pyspark_leveret.options import parse_options
from pyspark_leveret.queue import EpochRows, QueueStreamReader
from tests.spark.lake import serving


def test_checkpoint_that_is_older_than_the_lease_is_explained(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.fill("q", 0, 10, "classic")
        given = {"url": served.http, "queue": "q", "reader": "r1", "maxRecordsPerTrigger": "5"}
        reader = QueueStreamReader(parse_options(given), ["body"])
        limit = ReadMaxRows(5)
        assert reader.latestOffset({"epoch": 0}, limit) == {"epoch": 1}
        assert reader.latestOffset({"epoch": 1}, limit) == {"epoch": 2}
        reader.commit({"epoch": 2})
        served.fill("q", 10, 12, "classic")
        with pytest.raises(DataLostError) as raised:
            reader.latestOffset({"epoch": 0}, limit)
        text = str(raised.value)
        assert "older than the lease of reader 'r1'" in text
        assert "epochs 1 to 2 are acked" in text
        assert "a new, empty checkpoint continues with epoch 3" in text
        lenient = QueueStreamReader(parse_options({**given, "failOnDataLoss": "false"}), ["body"])
        assert lenient.latestOffset({"epoch": 0}, limit) == {"epoch": 3}
        assert lenient.partitions({"epoch": 0}, {"epoch": 3}) == [EpochRows(3, 0, 2)]
        assert reader.initialOffset() == {"epoch": 2}, "as a query with a new checkpoint does"
