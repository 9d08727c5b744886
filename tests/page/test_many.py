"""A long list: the broker sorts and searches, and only visible pages are loaded."""

import re
import threading
from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import Request, expect

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask
from tests.page.browser import Reader

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")

QUEUES = 2_050
EXCHANGES = 1_050
CLIENTS = 130  # more than one page of connections, and of channels


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        done = threading.Event()

        def declare() -> None:
            with found.node.view.turn():
                vhost = found.node.broker.vhost("/")
                for number in range(QUEUES):
                    vhost.declare_queue(f"queue.{number:05}", durable=False, arguments={})
                for number in range(EXCHANGES):
                    name = f"exchange.{number:05}"
                    vhost.declare_exchange(
                        name,
                        "topic",
                        durable=False,
                        auto_delete=False,
                        internal=False,
                        arguments={},
                    )
            done.set()

        found.node.turns._loop.call_soon_threadsafe(declare)
        assert done.wait(60)
        body = {"properties": {}, "routing_key": "queue.01234", "payload": "x"}
        path = "/api/exchanges/%2F/amq.default/publish"
        assert ask(found, "POST", path, {**body, "payload_encoding": "string"})[0] == 200
        yield found


def test_only_visible_pages_are_loaded(reader: Reader) -> None:
    page = reader.page
    rows = page.locator(".rows tr[data-row]")
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/api/queues?" in request.url:
            asked.append(request.url)

    page.on("request", note)
    reader.open("#/queues", "/queues")
    expect(page.get_by_text("2,050 in total: 1 ready, 0 in flight")).to_be_visible()
    expect(rows.first).to_contain_text("queue.00000")
    assert rows.count() < 60, "only visible rows are elements"
    page.locator(".rows").focus()
    reader.press("End")
    last = page.get_by_role("link", name="queue.02049", exact=True)
    expect(last).to_be_focused()
    reader.press("Home")
    expect(page.get_by_role("link", name="queue.00000", exact=True)).to_be_focused()
    page.locator(".rows").evaluate("host => { host.scrollTop = 40 * 995; }")  # between two pages
    expect(page.get_by_role("link", name="queue.00999", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="queue.01001", exact=True)).to_be_visible()
    assert asked
    assert all("page_size=100" in url for url in asked)

    page.get_by_role("button", name="Ready", exact=True).click()
    expect(rows.first).to_contain_text("queue.01234")
    page.get_by_label("Search queues").fill("/0204.$/")
    expect(page.get_by_text("10 of 2,050: 0 ready, 0 in flight")).to_be_visible()
    expect(rows).to_have_count(10)
    page.get_by_label("Search queues").fill("/(?=0204)/")  # the broker knows no look-ahead
    expect(page.get_by_role("status").filter(has_text="regular expression")).to_be_visible()
    expect(rows).to_have_count(10)
    page.get_by_label("Search queues").fill("")
    page.get_by_role("button", name="With messages").click()
    expect(page.get_by_text("1 of 2,050: 1 ready, 0 in flight")).to_be_visible()
    expect(rows).to_have_count(1)


@pytest.fixture(scope="module")
def clients(server: RunningBroker) -> Iterator[list[pika.BlockingConnection]]:
    """Connect clients that name their connections; the last one holds a message."""
    connections = []
    for number in range(CLIENTS):
        parameters = pika.URLParameters(f"{server.url}?heartbeat=0")
        parameters.client_properties = {"connection_name": f"client.{number:03}"}
        connections.append(pika.BlockingConnection(parameters))
        channel = connections[-1].channel()
        if number == CLIENTS - 1:
            channel.basic_publish("", "queue.00000", b"x")
            channel.basic_get("queue.00000")
    yield connections
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("view", "last", "total", "found"),
    [
        ("connections", "client.129", "130 in total", "client.077"),
        ("channels", "client.129 (1)", "130 in total", "client.077 (1)"),
        ("exchanges", "exchange.01049", "1,058 in total", "exchange.00077"),
    ],
)
def test_every_long_list_is_loaded_by_page(
    reader: Reader, clients: object, view: str, last: str, total: str, found: str
) -> None:
    page = reader.page
    rows = page.locator(".rows tr[data-row]")
    asked: list[str] = []

    def note(request: Request) -> None:
        if f"/api/{view}" in request.url:
            asked.append(request.url)

    page.on("request", note)
    reader.open(f"#/{view}", f"/{view}")
    expect(page.get_by_text(total)).to_be_visible()
    assert rows.count() < 60, "only visible rows are elements"
    page.locator(".rows").focus()
    reader.press("End")
    expect(page.get_by_role("link", name=last, exact=True)).to_be_focused()
    page.get_by_label(f"Search {view}").fill(found.partition(" ")[0])
    expect(rows).to_have_count(1)
    expect(page.get_by_role("link", name=found, exact=True)).to_be_visible()
    assert asked
    assert all("page_size=100" in url for url in asked)


@pytest.mark.parametrize(
    ("view", "choice", "count"),
    [("channels", "With messages in flight", 1), ("exchanges", "User-defined", EXCHANGES)],
)
def test_the_broker_filters_channels_and_exchanges(
    reader: Reader, clients: object, view: str, choice: str, count: int
) -> None:
    reader.open(f"#/{view}", f"/{view}")
    reader.page.get_by_role("button", name=choice).click()
    expect(reader.page.get_by_text(f"{count:,} of")).to_be_visible()


def test_a_list_that_has_become_shorter_is_shown_from_its_beginning(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    reader.open("#/queues?row=9000", "/queues")
    expect(page.get_by_role("link", name="queue.00000", exact=True)).to_be_visible()
    expect(page.get_by_text("2,050 in total")).to_be_visible()


def test_chosen_columns_are_kept(reader: Reader) -> None:
    page = reader.page
    heads = page.locator(".rows th")
    reader.open("#/queues", "/queues")
    expect(heads.filter(has_text="Capacity")).to_have_count(0)
    page.get_by_role("button", name="Columns").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(re.compile("Capacity: share of the consumers")).check()
    dialog.get_by_label("Consumers", exact=True).uncheck()
    reader.press("Escape")
    for _ in ("after the choice", "after a reload"):
        expect(heads.filter(has_text="Capacity")).to_be_visible()
        expect(heads.filter(has_text="Consumers")).to_have_count(0)
        cells = page.locator(".rows tr[data-row]").first.locator("td")
        expect(cells).to_have_count(heads.count())
        page.reload()
    page.get_by_role("button", name="Capacity").click()
    page.wait_for_url("**sort=-Capacity")
    expect(page.get_by_text("2,050 in total")).to_be_visible()
