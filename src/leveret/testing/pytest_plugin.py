"""Fixtures for pytest: a broker for the whole module, and one with a clock to move.

They are there as soon as Leveret is installed.
"""

from collections.abc import Iterator

import pytest

from leveret.testing.broker import BrokerUrl, broker
from leveret.testing.clock import ManualClock


@pytest.fixture
def leveret_clock() -> ManualClock:
    """The clock of `leveret_url`'s broker: it stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def leveret_url(leveret_clock: ManualClock) -> Iterator[BrokerUrl]:
    """The URL of a broker of this test's own."""
    with broker(clock=leveret_clock) as url:
        yield url
