"""The page of charts in a browser: hostile names, no network, light and dark, narrow and wide."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from leveret.charts.charts import Lines, Series
from leveret.charts.charts import Page as Charts
from leveret.charts.drawing import POINTS_MAX
from leveret.charts.page import ROWS_MAX, SERIES_MAX, page_html
from leveret.pipeline.report_pages import dead_letter_page, jobs_page, latency_page
from tests.page.browser import CONTRAST, DESKTOP, PHONE, WITHIN_MS

pytestmark = pytest.mark.compiled_only("looks are the page's own, and the same in both forms")

MARKUP = "<img src=x onerror=alert(1)>"
BREAKOUT = "'\"></title></svg></table><script>alert(2)</script>"
HIDDEN = "a\u202eb\x00c"
NAMES = [MARKUP, BREAKOUT, HIDDEN, "grüße/日本語", "x" * 300]


def dead_letters() -> Any:
    rows = [{"value": name, "letters": 9 - n} for n, name in enumerate(NAMES)]
    hours = [
        {"hour": f"2026-03-{day:02} {hour:02}:00:00", "reason": f"{name}{n}", "letters": hour % 5}
        for day in range(1, 29)
        for hour in range(0, 24, 3)
        for n, name in enumerate(NAMES * 3)
    ]
    names = ("queue", "reason", "error_class", "routing_key", "service", "hour")
    always = {"letters": 1, "newest_id": 7}
    worst = [{**dict.fromkeys(names[:5], name), **always, "error": name} for name in NAMES]
    return dead_letter_page(
        {
            **{"letters": 12_345, "retries_max": 7, "alive_ms_p50": 3_250, "alive_ms_p95": None},
            **{"first": "2026-03-01 00:00:00", "last": "2026-03-28 23:00:00"},
            **{"by": dict.fromkeys(names, rows), "hours": hours, "offenders": worst},
        },
        NAMES,
        "http://127.0.0.1:15672",
    )


def latencies() -> Any:
    shares = {"count": 60, "p50": 12.5, "p95": 80.0, "p99": 640.0, "max": 700.0}
    queues = [{"queue": name, "kind": "to ack", **shares} for name in NAMES]
    windows = [
        {
            **{"queue": name, "kind": kind, "start": f"2026-03-01 {n // 12:02}:{n % 12 * 5:02}:00"},
            **{"p50": 20 + n, "p95": 200 + 90 * math.sin(n / 9), "p99": 500 + 20 * n, "count": 5},
        }
        for name in NAMES[:2]
        for kind in ("waiting", "in flight", "to ack")
        for n in range(120)
    ]
    services = [{"queue": name, "service": name, "kind": "to ack", **shares} for name in NAMES]
    found = {"window_s": 300, "queues": queues, "services": services, "windows": windows}
    return latency_page(found, MARKUP)


def jobs() -> Any:
    names = [{"namespace": name, "topic": name} for name in NAMES]
    states = {"ready": 5, "scheduled": 1, "leased": 2, "dead": 3}
    topics = [{**name, **states, "oldest_ready_s": 90.0, "retries": 1} for name in names]
    errors = [{**name, "error": name["topic"], "jobs": 2, "last": None} for name in names]
    hours = [{**name, "hour": "2026-03-01 12:00:00", "came": 4, "failed": 1} for name in names]
    return jobs_page({**states, "topics": topics, "errors": errors, "hours": hours}, MARKUP)


def nothing() -> Any:
    by: dict[str, list[Any]] = {
        name: [] for name in ("queue", "reason", "error_class", "routing_key", "service")
    }
    empty = dict.fromkeys(("first", "last", "retries_max", "alive_ms_p50", "alive_ms_p95"))
    return dead_letter_page({"letters": 0, **empty, "by": by, "hours": [], "offenders": []}, ["q"])


@pytest.fixture(
    scope="module", params=[(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"]
)
def offline(browser: Browser, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    (width, height), theme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, offline=True
    )
    context.set_default_timeout(WITHIN_MS)
    yield context
    context.close()


@pytest.fixture
def page(offline: BrowserContext) -> Iterator[Page]:
    """A window that must have nothing to complain about, and asks for nothing besides the file."""
    found = offline.new_page()
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text))
    found.on("pageerror", lambda fault: complaints.append(str(fault)))
    found.on("dialog", lambda dialog: complaints.append(dialog.message))
    asked: list[str] = []
    found.on("request", lambda request: asked.append(request.url))
    yield found
    found.close()
    assert complaints == []
    assert all(url.startswith("file:") for url in asked) and len(asked) == 1


@pytest.mark.parametrize("make", [dead_letters, latencies, jobs, nothing])
def test_pages_show_everything_and_run_nothing(page: Page, tmp_path: Path, make: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_html(make()))
    page.goto(path.as_uri())
    assert page.locator("script, img, iframe, link").count() == 0
    addresses = [link.get_attribute("href") for link in page.locator("a").all()]
    assert set(addresses) == ({"http://127.0.0.1:15672/#/trace?id=7"} if addresses else set())
    assert bool(addresses) == (make is dead_letters)
    if make is not nothing:
        assert page.get_by_text(MARKUP).count() > 0
        assert page.get_by_text("a\ufffdb\ufffdc").count() > 0
    # A chart has a name and its numbers in a table beside it.
    for section in page.locator("section:has(svg[role=img])").all():
        assert section.get_by_role("img").get_attribute("aria-labelledby")
        assert section.locator("tbody tr").count() > 0
    wider = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wider) == 0
    assert page.evaluate(CONTRAST) == []


def test_drawings_are_bounded_and_stand_within_their_frame(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_html(dead_letters()))
    page.goto(path.as_uri())
    first = page.locator("section").first
    assert first.locator("ul li").count() == SERIES_MAX
    assert first.locator("ul li").last.inner_text() == "others"
    assert 0 < first.locator("tbody tr").count() <= ROWS_MAX
    outside = """() => [...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("rect, circle, text")].filter((part) => {
            const box = part.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        }).map((part) => part.outerHTML);
    })"""
    assert page.evaluate(outside) == []


def test_no_column_of_a_table_is_cut_off(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    parts = [part for make in (dead_letters, latencies, jobs) for part in make().parts]
    path.write_text(page_html(Charts("t", "", [], parts)))
    page.goto(path.as_uri())
    cut = """() => [...document.querySelectorAll(".numbers")]
        .filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => box.parentElement.querySelector("h2").textContent)"""
    is_phone = page.viewport_size is not None and page.viewport_size["width"] < DESKTOP[0]
    assert is_phone or page.evaluate(cut) == []  # a phone scrolls wide tables


def test_a_line_of_one_point_in_time_is_drawn() -> None:
    one = Lines("l", [Series("p99", [(1_772_000_000.0, 5.0)])], "ms")
    assert page_html(Charts("t", "", [], [one])).count("<circle") == 1


def test_charts_of_one_queue_share_their_scale() -> None:
    low = Lines("low", [Series("p50", [(0.0, 5.0), (60.0, 6.0)])], "ms", scale="q")
    high = Lines("high", [Series("p50", [(0.0, 4000.0), (60.0, 4000.0)])], "ms", scale="q")
    other = Lines("other", [Series("p50", [(0.0, 5.0), (60.0, 6.0)])], "ms", scale="r")
    drawn = page_html(Charts("t", "", [], [low, high, other])).split("<section")[1:]
    ticks = [re.findall(r'text-anchor="end">([^<]+)<', each) for each in drawn]
    assert ticks[0] == ticks[1] and ticks[1] != ticks[2]


def test_a_long_line_keeps_its_peaks(page: Page, tmp_path: Path) -> None:
    points = [(60.0 * n, 9_000.0 if n == 4_321 else 1.0) for n in range(10_000)]
    path = tmp_path / "page.html"
    path.write_text(page_html(Charts("t", "", [], [Lines("l", [Series("p99", points)], "ms")])))
    page.goto(path.as_uri())
    assert page.locator("circle").count() == POINTS_MAX
    assert page.locator("circle title", has_text="9 s").count() == 1
    assert page.get_by_text("A point is the greatest of 25 values.").count() == 1
