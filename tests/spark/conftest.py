"""One Spark session for all tests of this folder, and a broker for each test.

Spark does not see the form of the broker. `make test` runs this folder once, on the sources: it
takes longest, and so it need not wait for the wheel.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.pipeline.session import spark_session
from tests.spark.lake import Served, serving

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("compiled_only") is not None:
            raise pytest.UsageError(f"{item.nodeid}: tests of Spark run on the sources only")


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
