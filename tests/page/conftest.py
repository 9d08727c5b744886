"""One browser for each file of tests of the page.

Playwright keeps an event loop running in this thread. It must be closed before other tests run.
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
    """A signed-in user with a desktop window. The browser must report no errors."""
    found = Reader(browser, server)
    found.sign_in()
    yield found
    complaints = found.complaints
    found.close()
    assert complaints == []
