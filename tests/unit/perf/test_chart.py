"""The chart page: well formed, self-contained, with every line and number in it."""

import re
from html.parser import HTMLParser

from leveret.perf.chart import Chart, Series, page

_VOID = {"meta", "line", "polyline"}


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


def draw(drawn: Chart) -> str:
    return page("title", [], [drawn])


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


def test_points_are_inside_the_drawing() -> None:
    for drawn in (draw(chart()), draw(chart(is_log=True))):
        for points in re.findall(r'points="([^"]*)"', drawn):
            for x, y in (pair.split(",") for pair in points.split()):
                assert 0 <= float(x) <= 720
                assert 0 <= float(y) <= 290


def test_greatest_value_is_drawn_highest() -> None:
    (rising, _) = re.findall(r'points="([^"]*)"', draw(chart()))
    first, second = (float(pair.split(",")[1]) for pair in rising.split())
    assert second < first


def test_labels_replace_the_numbers_of_the_x_axis() -> None:
    assert "monday" in draw(chart(x_labels={1: "monday", 2: "tuesday"}))


def test_chart_without_points_says_so() -> None:
    assert "There is nothing to show" in draw(Chart("t", "u", [Series("s", [])]))
