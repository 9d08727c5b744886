"""The page over time: polling and pausing, a broker that restarts."""

from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import BrowserContext, expect

from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import Reader
from tools.ports import free_port

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")

CALLS_MAX = 5  # of one refresh


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def test_a_lost_broker_is_reported_and_found_again(context: BrowserContext) -> None:
    port = free_port()
    with broker(http=True, http_port=port) as server:
        reader = Reader(context, server)
        reader.sign_in()
        reader.open("#/queues", "/queues")
    banner = reader.page.locator("#banner")
    expect(banner).to_contain_text("The broker does not answer.")
    expect(reader.page.get_by_role("heading", level=1)).to_have_text("Queues")
    with broker(http=True, http_port=port) as server:
        expect(banner).to_be_empty()
        expect(reader.page.get_by_text("The broker is reachable again.")).to_be_visible()
        with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
            connection.channel().queue_declare("new")
        expect(reader.page.get_by_role("link", name="new")).to_be_visible()
        reader.close()


def test_a_paused_page_sends_no_requests(reader: Reader) -> None:
    page = reader.page
    reader.open("#/queues", "/queues")
    reader.press("p")
    expect(page.locator("#pause")).to_have_text("Paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(CALLS_MAX):  # a refresh that had begun may need more than one call
        asked.clear()
        # Longer than the polling interval.
        page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 3500))")
        if not asked:
            break
    assert asked == []
    with page.expect_request("**/api/queues*"):
        reader.press("p")
    expect(page.locator("#pause")).to_have_text("Live")


def test_a_failed_call_is_reported_and_polling_continues(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    reader.open("#/queues/%2F/nothing", "/queues/:vhost/:name")
    expect(page.get_by_role("alert").filter(has_text="Not found")).to_be_visible()
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("nothing")
    expect(page.locator("[data-count=ready]")).to_have_text("0")
    page.get_by_role("link", name="Overview", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_a_wrong_password_is_reported_and_not_stored(
    context: BrowserContext, server: RunningBroker
) -> None:
    reader = Reader(context, server)
    page = reader.page
    page.goto(reader.base)
    page.get_by_label("Name").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Wrong name or password.")).to_be_visible()
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert page.evaluate("Object.keys(localStorage)") == []
    assert page.evaluate("document.cookie") == ""
    page.locator("#signout").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('leveret.login')") is None
    reader.close()
