"""Loading, empty, failed and outdated are four states of every view, and look different.

The browser holds back or breaks the calls of the page, so that a broker is as slow or as dead as a
test needs.
"""

import re
from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import HeldCalls, Reader
from tools.ports import free_port

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")

# Views that load nothing by themselves.
STATIC = {"/trace", "/definitions"}
CALLS = "**/api/**"
LOADING = re.compile("Loading …|Still loading")  # the second one after some seconds
# The visible parts of the view besides its heading, its tabs and the sentence about its state.
CONTENT = """() => [...document.querySelectorAll("main > .view > .view > *")]
    .filter((part) => !part.matches(".head, .tabs, .state") && part.checkVisibility())
    .map((part) => part.textContent)"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def addresses(page: Page) -> dict[str, str]:
    """Return an address for each view that loads data."""
    known: list[str] = page.evaluate(
        "async () => (await import('/page/routes.js')).ROUTES.map((route) => route.path)"
    )
    found = {}
    for path in known:
        address = path.replace(":vhost", "%2F").replace(":tab", "bindings")
        for part in (":name", ":namespace", ":topic"):
            address = address.replace(part, "x")
        if path not in STATIC and not path.startswith("/manual"):  # needs no call of the API
            found[path] = f"#{address}"
    return found


def go(page: Page, view: str, address: str) -> None:
    page.evaluate("address => { location.hash = address; }", address)
    page.locator(f'main[data-view="{view}"]').wait_for()


def out_of_order(route: Route) -> None:
    route.fulfill(status=500, json={"error": "x", "reason": "out of order"})


def test_every_view_says_that_it_loads_and_that_it_failed(reader: Reader) -> None:
    page = reader.page
    reader.press("p")  # each view asks once
    held = HeldCalls(page, CALLS, "**/stats*")
    for view, address in addresses(page).items():
        held.hold()
        go(page, view, address)
        expect(page.locator("main")).to_have_attribute("data-state", "loading")
        expect(page.locator("main").get_by_text(LOADING).first).to_be_visible()
        assert page.evaluate(CONTENT) == [], f"{view} shows content before it has an answer"
        held.let_go(out_of_order)
        expect(page.locator("main")).to_have_attribute("data-state", "failed")
        alert = page.locator("main").get_by_role("alert")
        expect(alert).to_contain_text("This view could not be loaded.")
        expect(alert).to_contain_text("out of order")
        assert page.evaluate(CONTENT) == [], f"{view} shows content without an answer"


def test_an_empty_list_is_empty_only_after_an_answer(reader: Reader) -> None:
    page = reader.page
    held = HeldCalls(page, "**/api/queues*")
    go(page, "/queues", "#/queues")
    expect(page.get_by_text(LOADING)).to_be_visible()
    expect(page.get_by_text("No queues yet.")).not_to_be_visible()
    expect(page.get_by_text("Still loading. The broker is slow to answer.")).to_be_visible()
    held.let_go()
    expect(page.get_by_text("No queues yet.")).to_be_visible()
    expect(page.locator("main")).to_have_attribute("data-state", "ready")


def test_a_failed_refresh_keeps_the_data_and_says_how_old_it_is(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("kept", exclusive=True)
        reader.open("#/queues", "/queues")
        expect(page.get_by_role("link", name="kept")).to_be_visible()
        page.route(CALLS, lambda route: route.fulfill(status=503, json={"reason": "busy"}))
        alert = page.locator("main").get_by_role("alert")
        expect(alert).to_contain_text("Outdated: this is the data of 20")
        expect(alert).to_contain_text("busy")
        expect(page.locator("main")).to_have_attribute("data-state", "stale")
        expect(page.get_by_role("link", name="kept")).to_be_visible()
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("main")).to_have_attribute("data-state", "ready")
        expect(alert).to_have_count(0)


def test_a_slow_refresh_is_outdated_until_its_answer(reader: Reader) -> None:
    page = reader.page
    reader.open("#/vhosts", "/vhosts")
    held = HeldCalls(page, "**/api/vhosts")
    outdated = page.get_by_text("The broker is slow to answer.")
    expect(outdated).to_contain_text("Outdated: this is the data of 20")
    expect(page.locator("main").get_by_role("link", name="/", exact=True)).to_be_visible()
    held.let_go()
    expect(outdated).to_have_count(0)


def test_a_view_opened_while_the_broker_is_dead_loads_when_it_is_back(
    context: BrowserContext,
) -> None:
    port = free_port()
    with broker(http=True, http_port=port) as server:
        reader = Reader(context, server)
        reader.sign_in()
    page = reader.page
    expect(page.locator("#banner")).to_contain_text("The broker does not answer.")
    page.evaluate("location.hash = '#/queues'")  # its file is not loaded yet
    alert = page.locator("main").get_by_role("alert")
    expect(alert).to_contain_text("This view could not be loaded. The broker does not answer.")
    expect(page.get_by_text("No queues yet.")).to_have_count(0)
    with broker(http=True, http_port=port):
        expect(page.get_by_text("No queues yet.")).to_be_visible()
        complaints = reader.complaints
        reader.close()
    assert complaints == []


def test_slow_disk_is_noted_above_every_view(
    reader: Reader, server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = reader.page.get_by_text("Disk of node test: slow: a sync takes 300 ms")
    reader.open("#/queues", "/queues")
    expect(note).to_have_count(0)
    monkeypatch.setattr(server.node.view, "slow_sync_s", lambda: 0.3)
    expect(note).to_be_visible()
    monkeypatch.undo()
    expect(note).to_have_count(0)
