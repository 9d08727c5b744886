"""Options for the archive of Spark's classes."""

import os
from pathlib import Path

import pytest

from leveret.pipeline.class_archive import WRITE_S, archive_options


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of Spark."""
    (tmp_path / "home" / "jars").mkdir(parents=True)
    (tmp_path / "home" / "jars" / "spark-core-4.2.jar").touch()
    return tmp_path / "home"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A home of Java."""
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"')
    return tmp_path / "java"


def age_notes(home: Path) -> None:
    """Let the time pass within which no other JVM writes an archive."""
    for note in home.glob("*.noted"):
        then_s = note.stat().st_mtime - WRITE_S - 1
        os.utime(note, (then_s, then_s))


def archive_to_write(home: Path, java: Path) -> Path:
    """Return the archive that a start writes some time after the first one."""
    assert archive_options(home, java) == "", "the first start of these versions"
    age_notes(home)
    option = archive_options(home, java).split()[0]
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.partition("=")[2])


def test_later_start_writes_the_archive_and_the_following_ones_use_it(
    home: Path, java: Path
) -> None:
    archive = archive_to_write(home, java)
    assert archive.parent == home
    assert archive_options(home, java) == "", "another JVM is going to write it"
    archive.touch()
    assert archive_options(home, java).split()[0] == f"-XX:SharedArchiveFile={archive}"


def test_archive_that_a_killed_jvm_did_not_write_is_written_by_another(
    home: Path, java: Path
) -> None:
    archive = archive_to_write(home, java)
    age_notes(home)
    assert archive_options(home, java).split()[0] == f"-XX:ArchiveClassesAtExit={archive}"


def test_upgrade_of_java_or_of_spark_writes_a_new_archive_in_place_of_the_old(
    home: Path, java: Path
) -> None:
    before = archive_to_write(home, java)
    before.touch()
    (java / "release").write_text('JAVA_VERSION="17.0.2"')
    after = archive_to_write(home, java)
    assert after != before
    assert not before.exists()
    after.touch()
    (home / "jars" / "spark-core-4.2.jar").rename(home / "jars" / "spark-core-4.3.jar")
    assert archive_to_write(home, java) not in (before, after)
    assert not after.exists()


def test_another_java_keeps_its_own_archive(home: Path, java: Path, tmp_path: Path) -> None:
    first = archive_to_write(home, java)
    first.touch()
    other = tmp_path / "other"
    other.mkdir()
    (other / "release").write_text('JAVA_VERSION="21"')
    assert archive_to_write(home, other) != first
    assert first.exists()


def test_class_path_with_a_folder_of_settings_has_no_archive(
    home: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert archive_options(home, java) == ""


def test_java_without_a_release_file_has_no_archive(home: Path, tmp_path: Path) -> None:
    assert archive_options(home, tmp_path) == ""
