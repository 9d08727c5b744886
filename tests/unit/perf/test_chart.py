"""The chart page: well formed, self-contained, with every line and number in it."""

import re
from html.parser import HTMLParser

import pytest

from leveret.perf.chart import Chart, Series, draw, linear, logarithmic, page, short_number

_VOID = {"meta", "line", "polyline", "i"}


class Tags(HTMLParser):
    """Checks that tags are nested well, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag


def tags_of(text: str) -> Tags:
    parser = Tags()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def chart(**changes: object) -> Chart:
    lines = [Series("sent", [(1, 10.0), (2, 400.0)]), Series("<b>", [(2, 5.0)])]
    return Chart("Rate & more", "per second", lines, **changes)  # type: ignore[arg-type]


def test_page_is_well_formed_and_needs_nothing_else() -> None:
    text = page("A <title>", [("time", "1 s"), ("p50", "<1")], [chart(), chart(is_log=True)])
    tags = tags_of(text)
    assert tags.count["polyline"] == 4
    assert tags.count["table"] == 2
    assert {name for name, _ in tags.attributes}.isdisjoint({"src", "href"})
    assert "url(" not in text
    assert "script" not in tags.count
    assert "prefers-color-scheme:dark" in text
    assert "&lt;b&gt;" in text


def test_points_are_inside_of_the_drawing() -> None:
    for drawn in (draw(chart()), draw(chart(is_log=True))):
        for points in re.findall(r'points="([^"]*)"', drawn):
            for x, y in (pair.split(",") for pair in points.split()):
                assert 0 <= float(x) <= 1008
                assert 0 <= float(y) <= 300


def test_greatest_value_is_drawn_highest() -> None:
    (rising, _) = re.findall(r'points="([^"]*)"', draw(chart()))
    first, second = (float(pair.split(",")[1]) for pair in rising.split())
    assert second < first


def test_words_may_stand_for_places() -> None:
    assert "monday" in draw(chart(x_labels={1: "monday", 2: "tuesday"}))


def test_chart_of_nothing_says_so() -> None:
    assert "No measurements" in draw(Chart("t", "u", [Series("s", [])]))


@pytest.mark.parametrize(("high", "top"), [(0, 1), (7, 8), (99, 100), (401_000, 500_000)])
def test_axis_ends_at_a_round_number(high: float, top: float) -> None:
    scale = linear(high)
    assert scale.high == pytest.approx(top)
    assert scale.ticks[-1] == scale.high


def test_logarithmic_axis_has_powers_of_ten() -> None:
    scale = logarithmic([0.0, 3.0, 700.0])
    assert scale.ticks == [1, 10, 100, 1000]
    assert scale.place(10) == pytest.approx(1 / 3)
    assert scale.place(0) == 0


def test_short_numbers() -> None:
    assert [short_number(n) for n in (0, 0.25, 999, 1500, 2e6)] == [
        "0",
        "0.25",
        "999",
        "1.5k",
        "2M",
    ]
