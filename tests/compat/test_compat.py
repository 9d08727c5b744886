"""Every situation of the compatibility table, played against `leveret serve`.

The comparison with RabbitMQ itself is `make compat`; here stands only what Leveret must do.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.compat import differences
from tests.compat.brokers import Address
from tests.compat.case import Case, play
from tests.compat.cases import ALL
from tests.compat.conftest import Observations

# A situation that is about time (a message is looked at before it expires after 0.3 s) is another
# one on a machine that stood still meanwhile. What is wrong is wrong each time that it is played.
PLAYS_MAX: Final = 3


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_situation(case: Case, broker_process: Address, slow_observations: Observations) -> None:
    pending = slow_observations.get(case.id)
    observed = play(case, *broker_process) if pending is None else pending.result()
    for _ in range(PLAYS_MAX - 1 if case.wait_s else 0):
        if observed == case.expected:
            break
        observed = play(case, *broker_process)
    assert observed == case.expected, case.title


def test_there_are_at_least_two_hundred_situations_with_ids_of_their_own() -> None:
    assert len(ALL) >= 200
    assert len({case.id for case in ALL}) == len(ALL)


def test_the_page_of_differences_and_the_cases_agree() -> None:
    assert differences.faults(ALL, differences.read_page()) == []
