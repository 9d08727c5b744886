"""Every situation of the compatibility table, played against `leveret serve`.

The comparison with RabbitMQ itself is `make compat`; here stands only what Leveret must do.
"""

from __future__ import annotations

import pytest

from tests.compat import differences
from tests.compat.brokers import Address
from tests.compat.case import Case, play
from tests.compat.cases import ALL
from tests.compat.conftest import Observations


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_situation(case: Case, broker_process: Address, slow_observations: Observations) -> None:
    pending = slow_observations.get(case.id)
    observed = play(case, *broker_process) if pending is None else pending.result()
    assert observed == case.expected, case.title


def test_there_are_at_least_two_hundred_situations_with_ids_of_their_own() -> None:
    assert len(ALL) >= 200
    assert len({case.id for case in ALL}) == len(ALL)


def test_the_page_of_differences_and_the_cases_agree() -> None:
    assert differences.faults(ALL, differences.read_page()) == []
