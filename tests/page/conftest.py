"""One browser for all tests of the page, and one context of it for all readers.

A context keeps its renderer and its cache: a reader of a new one takes twice the time to sign in.
Playwright keeps an event loop running in this thread. It must be closed before other tests run.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from leveret.testing.broker import RunningBroker
from tests.page.browser import Reader, chromium, new_context


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    found = new_context(browser)
    yield found
    found.close()


@pytest.fixture
def reader(context: BrowserContext, server: RunningBroker) -> Iterator[Reader]:
    """A signed-in user with a desktop window. The browser must report no errors."""
    found = Reader(context, server)
    try:
        found.sign_in()
        yield found
        complaints = found.complaints
    finally:
        found.close()
    assert complaints == []
