"""Exactly once into the lake: driver and broker are killed in every phase of a batch."""

from pathlib import Path

from pyspark.sql import SparkSession

from tools.chaos_spark import BATCH_RECORDS, DELTA, run_round

MESSAGES = 1000  # `make chaos-spark` takes more, all phases of both kinds, and several rounds
QUERIES = ("stream-read", "queue-plan", "queue-output", "stream-commit", DELTA)


def test_kills_in_every_phase_leave_each_message_once_in_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = run_round(spark, tmp_path, MESSAGES, QUERIES)
    assert [found[name] for name in QUERIES[:3]] == ["1/0/0"] * 3
    assert found[DELTA] == f"{2 * BATCH_RECORDS}/{BATCH_RECORDS}", "moved, and not committed"
    _, manifest, committed = found["stream-commit"].split("/")
    assert int(manifest) > int(committed)
