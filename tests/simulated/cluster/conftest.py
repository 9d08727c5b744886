"""Fixtures of simulated clusters."""

from collections.abc import Iterator

import pytest

from tests.simulated.cluster.world import CheckedSchedule


@pytest.fixture
def schedule(seed: int) -> Iterator[CheckedSchedule]:
    print(f"seed {seed}")
    made = CheckedSchedule(seed)
    with made:
        yield made
