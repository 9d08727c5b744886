"""A browser and a broker for each module.

What drives the browser keeps an event loop running in this thread: it must be gone before tests of
other parts run.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from leveret.testing.broker import RunningBroker
from tests.page.browser import Reader, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def reader(browser: Browser, server: RunningBroker) -> Iterator[Reader]:
    """Somebody signed in, at a desk; their browser must have nothing to complain about."""
    found = Reader(browser, server)
    found.sign_in()
    yield found
    complaints = found.complaints
    found.close()
    assert complaints == []
