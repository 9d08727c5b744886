"""A node that cannot start says which path is at fault, and what to do."""

from errno import EACCES
from pathlib import Path

import pytest

from leveret.config.settings import Settings
from leveret.runtime.serve import start_fault


@pytest.mark.parametrize("name", ["", "lock"])
def test_existing_data_of_another_user_is_not_to_be_left_for_another_directory(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    found = start_fault(PermissionError(EACCES, "denied", str(path)), Settings(data=tmp_path))
    assert found == (
        f"{path}: denied; give {tmp_path} and its files to the user of the node (chown -R)"
    )


def test_a_directory_that_cannot_be_made_is_to_be_chosen_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "new"
    found = start_fault(PermissionError(EACCES, "denied", str(tmp_path)), Settings(data=data))
    assert found.endswith("; choose a data directory that this user can write to (--data)")
