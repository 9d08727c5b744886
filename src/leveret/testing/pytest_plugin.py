"""Fixtures for pytest: a broker for each test, and the clock that moves it.

`pytest_plugins = ["leveret.testing.pytest_plugin"]` in a conftest.py brings them. They do not
come by themselves with the package: every run of pytest beside it would pay for the import.
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
