"""Exactly once into the lake: driver and broker are killed in every phase of a batch."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tools.chaos_spark import run_round

MESSAGES = 2000  # `make chaos-spark` takes more, and more rounds

pytestmark = pytest.mark.compiled_only("Spark is slow to start, and does not see the form")


@pytest.mark.timeout(400)
def test_kills_in_every_phase_leave_each_message_once_in_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = run_round(spark, tmp_path, MESSAGES)
    for kind in ("stream", "queue"):
        assert found[f"{kind}-plan"] == "1/0/0"
        assert found[f"{kind}-read"] == "1/0/0"
        assert found[f"{kind}-output"] == "1/0/0"
    last = [found[f"{kind}-commit"].split("/") for kind in ("stream", "queue")]
    assert any(int(manifest) > int(committed) for _, manifest, committed in last)
