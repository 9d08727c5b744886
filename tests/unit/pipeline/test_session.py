"""Finding Java for Spark, and a start that imports little."""

import sys
from pathlib import Path

import pytest
from py4j.protocol import INPUT_CONVERTER  # type: ignore[import-untyped]

from leveret.errors import ConfigError
from leveret.pipeline import session


def java(home: Path, version: str) -> Path:
    """A program that says that it is a Java."""
    found = home / "bin" / "java"
    found.parent.mkdir(parents=True)
    found.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    found.chmod(0o755)
    return found


def test_java_of_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "new", "21.0.1")
    java(tmp_path / "other", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    assert session.find_java() == tmp_path / "new"


def test_old_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "old", "11.0.1")
    java(tmp_path / "new", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    assert session.find_java() == tmp_path / "new"


def test_version_in_the_release_file_is_read_without_starting_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    for name, version in (("old", "11.0.1"), ("new", "17.0.2")):
        java(tmp_path / name, version).write_text(f"#!/bin/sh\ntouch {started}\n")
        (tmp_path / name / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    link = tmp_path / "path"
    link.mkdir()
    (link / "java").symlink_to(tmp_path / "new" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{link}:/usr/bin:/bin")
    assert session.find_java() == tmp_path / "new"
    assert not started.exists()


def test_without_java_one_sentence_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "old", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session, "_FOLDERS", (str(tmp_path),))
    with pytest.raises(ConfigError, match="apt-get install openjdk-17-jre-headless"):
        session.find_java()


def test_arguments_for_the_jvm_import_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(INPUT_CONVERTER)
    monkeypatch.setitem(sys.modules, "pyspark.testing.utils", None)  # it imports pandas
    try:
        session.pass_no_numpy_values()
        assert any(each.can_convert([1]) for each in INPUT_CONVERTER)
        assert not any(each.can_convert(object()) for each in INPUT_CONVERTER)
    finally:
        INPUT_CONVERTER[:] = before
