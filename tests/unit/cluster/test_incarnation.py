"""The incarnation of a node."""

from pathlib import Path

import pytest

from leveret.cluster.incarnation import NAME, next_incarnation
from leveret.errors import CorruptionError
from leveret.storage.disk import Disk


def test_it_grows_with_every_start_whatever_the_clock_says(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    assert next_incarnation(disk, 1000) == 1000
    assert next_incarnation(disk, 5000) == 5000
    assert next_incarnation(disk, 20) == 5001
    assert next_incarnation(disk, 5001) == 5002


def test_a_file_that_holds_no_number_is_reported(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"12 apples")
    with pytest.raises(CorruptionError, match="apples"):
        next_incarnation(Disk(tmp_path), 1)


def test_a_start_that_was_cut_short_leaves_the_number_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    next_incarnation(disk, 1000)
    (tmp_path / (NAME + ".new")).write_bytes(b"")
    assert next_incarnation(disk, 1) == 1001
