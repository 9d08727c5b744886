"""Ctrl+C ends an archive with one line; the same command then continues."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.lake import Served
from tests.spark.test_flows_lake import archived, bodies, environment_of


def test_an_archive_is_interrupted_and_goes_on(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 10)
    words = ["pipeline", "archive", "s", "--every", "1", "--master", "local[1]"]
    given = [*words, "--url", environment.url, "--lake", str(environment.lake_dir)]
    with subprocess.Popen(
        [sys.executable, "-m", "leveret", *given],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the signal is for it and its JVM, as a terminal sends it
    ) as process:
        try:
            assert process.stderr is not None
            before = []
            for line in process.stderr:
                before.append(line)
                if " rows" in line:
                    break
            os.killpg(process.pid, signal.SIGINT)
            told = process.stderr.read()
            assert process.wait() == 130, told
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    noise = [line for line in before if "WARNING" in line or "log4j" in line or "WARN " in line]
    assert noise == [], "Spark and Java print nothing"
    assert told.splitlines()[-1] == "leveret pipeline: interrupted"
    assert "Traceback" not in told and "\tat " not in told
    served.fill("s", 10, 15)
    archived(spark, environment)
    assert bodies(spark, environment) == list(range(15))
