"""Charts open with the history that the broker keeps."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from playwright.sync_api import Route, expect

from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import Reader

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")

ROWS = 360  # an hour, every ten seconds
STEPS = "path => path.getAttribute('d').split('L').length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker(http=True, disk=Disk(tmp_path_factory.mktemp("data"))) as found:
        yield found


def an_hour(route: Route) -> None:
    """Answer as a broker that has run for an hour: 5 messages each second."""
    found: Any = route.fetch().json()
    names = [*found["counters"], *found["gauges"]]
    now_ms = found["now_ms"]
    found["rows"] = [
        [now_ms - (ROWS - n) * 10_000, *(50 * n if name == "publish" else 7 for name in names)]
        for n in range(ROWS)
    ]
    route.fulfill(json=found)


def test_charts_begin_with_an_hour(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("q")
    page.route("**/history", an_hour)
    page.reload()  # forgets what the page has seen
    chart = page.get_by_role("img", name=re.compile("^Messages per second")).locator("..")
    curve = chart.locator("path.series-1")
    expect(chart.get_by_text("5 min ago")).to_be_visible()
    assert 25 < curve.evaluate(STEPS) < 40
    chart.get_by_label("Time range").select_option("1 hour")
    expect(chart.get_by_text("60 min ago")).to_be_visible()
    assert curve.evaluate(STEPS) > ROWS - 5
    for label in ("Confirmed", "Got (basic.get)", "Unroutable, returned", "Unroutable, dropped"):
        expect(page.locator("main dt").filter(has_text=label)).to_be_visible()

    for address, view, charts in (
        ("#/node", "/node", ("Memory", "Free disk space", "Open files")),
        ("#/queues/%2F/q", "/queues/:vhost/:name", ("Messages in the queue",)),
    ):
        reader.open(address, view)
        for name in charts:
            found = page.get_by_role("img", name=name).locator("..").locator("path.series-1")
            assert found.evaluate(STEPS) > ROWS - 5
    reader.open("#/node", "/node")
    expect(page.get_by_text("Program and definitions")).to_be_visible()
    top = page.get_by_role("img", name="Memory").locator("text.axis").all_text_contents()[2]
    assert re.fullmatch(r"[125]0*(\.0)? [KMG]iB", top)


def test_a_rate_that_is_not_known_is_not_shown_as_zero(reader: Reader) -> None:
    page = reader.page
    page.route("**/history", lambda route: route.fulfill(status=404, json={"reason": "none"}))
    page.route("**/api/overview", never_known())
    page.reload()
    rate = page.locator("[data-rate=publish]").first
    expect(rate).to_have_text("–")


def never_known() -> Callable[[Route], None]:
    """Return a broker that reports no rates, and whose counters go back each time it is asked."""
    asked = itertools.count()

    def answer(route: Route) -> None:
        found: Any = route.fetch().json()
        stats = found["message_stats"]
        counters = {name for name in stats if not name.endswith("_details")}
        found["message_stats"] = dict.fromkeys(counters, 1_000_000 - next(asked))
        route.fulfill(json=found)

    return answer
