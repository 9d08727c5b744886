"""A home of Spark without the zip file that slows its Python processes down."""

import os
from pathlib import Path

import pyspark
import pytest

from leveret.pipeline.spark_home import HOME, use_home_without_zip

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK_HOME is not set, and is after the test what it was before."""
    monkeypatch.setenv(HOME, "")
    monkeypatch.delenv(HOME)


@pytest.mark.usefixtures("unset")
def test_home_has_spark_and_no_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        use_home_without_zip()
        home = Path(os.environ.pop(HOME))
        assert home.is_relative_to(tmp_path)
        assert (home / "jars").resolve() == (INSTALLED / "jars").resolve()
        assert not (home / "python").exists()


def test_own_home_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, "/opt/spark")
    use_home_without_zip()
    assert os.environ[HOME] == "/opt/spark"


@pytest.mark.usefixtures("unset")
def test_cache_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    use_home_without_zip()
    assert HOME not in os.environ
