"""One Spark session for all tests of this folder, and a broker for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.pipeline.session import spark_session
from tests.spark.lake import Served, serving


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    # A failed task is tried again, as on a cluster, but not three times.
    session = spark_session("tests", master="local[2,2]", settings=settings, is_quick=True)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A broker that stores on disk."""
    with serving(tmp_path / "data") as found:
        yield found
