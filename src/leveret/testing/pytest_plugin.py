"""Pytest fixtures: one broker per test, and the manual clock that drives it.

`pytest_plugins = ["leveret.testing.pytest_plugin"]` in a conftest.py enables them. The package does
not register them as a plugin, because then every pytest run in the same environment would pay for
the import.
"""

from collections.abc import Iterator

import pytest

from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import ManualClock


@pytest.fixture
def leveret_clock() -> ManualClock:
    """The clock of `leveret_broker`. It stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def leveret_broker(leveret_clock: ManualClock) -> Iterator[RunningBroker]:
    """A running broker of this test alone. `leveret_broker.url` is its AMQP address."""
    with broker(clock=leveret_clock) as server:
        yield server
