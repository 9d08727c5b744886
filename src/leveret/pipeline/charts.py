"""A page of charts: one HTML file that needs nothing else.

A `Page` has figures, charts and tables. Charts are SVG in the page, each with its numbers in a
table beside it; there are no scripts, and the page's own policy refuses any. It follows the
reader's choice of light or dark, and can be printed.

Everything that is shown may come from a message, and so from anybody: `safe` is the only way into
the page. At most `SERIES_MAX` series are drawn, the rest as one; at most `ROWS_MAX` rows are shown.
"""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.pipeline.axes import (
    COUNT,
    Measure,
    count_ticks,
    measure_of,
    moment_text,
    plain_number,
    time_ticks,
    value_ticks,
)
from leveret.pipeline.charts_style import STYLE

SERIES_MAX: Final = 8
ROWS_MAX: Final = 500
BARS_MAX: Final = 20
POINTS_MAX: Final = 400  # of a line
DOTS_MAX: Final = 60  # of a line whose points are marked
TEXT_MAX: Final = 200  # characters of one cell
NAME_MAX: Final = 60  # of a series in its legend; half of that at the head of a column
OTHERS: Final = "others"
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_WIDTH: Final = 720.0
_HEIGHT: Final = 290.0
_LEFT: Final = 68.0
_RIGHT: Final = 18.0
_TOP: Final = 12.0
_BOTTOM: Final = 34.0
_BAR: Final = 26.0
_NAMES: Final = 210.0  # for the names of horizontal bars
# About how wide letters are: of Asian scripts, wide ones, large ones, all others.
_LETTERS: Final = (13.0, 11.5, 9.5, 7.6)
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")

Cell = str | float | None


@dataclass(frozen=True)
class Series:
    """Values of one name. The x of `Lines` and `Stacks` is seconds since 1970."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Lines:
    """Values over time."""

    title: str
    series: list[Series]
    unit: str = COUNT


@dataclass(frozen=True)
class Stacks:
    """Counts over time, those of one step upon each other."""

    title: str
    series: list[Series]
    step_s: int


@dataclass(frozen=True)
class Bars:
    """One value for each name, the greatest first."""

    title: str
    name: str  # of what the names stand for
    rows: list[tuple[str, float]]
    unit: str = COUNT


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Page:
    """What the file shows."""

    title: str
    about: str
    figures: list[tuple[str, str]]  # name and value, in large letters
    parts: list[Lines | Stacks | Bars | Table] = field(default_factory=list)


def page_html(page: Page) -> str:
    """The whole file."""
    figures = "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in page.figures
    )
    parts = "".join(_part(part, number) for number, part in enumerate(page.parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(page.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>{safe(page.title)}</h1><p>{safe(page.about)}</p></header>\n"
        f"<main><dl>{figures}</dl>{parts}</main></body></html>\n"
    )


def safe(value: object, length_max: int = TEXT_MAX) -> str:
    """A value as text of the page: markup is shown as it is written, and what hides is shown."""
    text = str(value)
    cut = text if len(text) <= length_max else f"{text[: length_max - 1]}…"
    return html.escape("".join(c if c.isprintable() else "�" for c in cut))


def _part(part: Lines | Stacks | Bars | Table, number: int) -> str:
    name = f"part{number}"
    if isinstance(part, Table):
        return _section(part.title, name, "", _table(part.columns, part.rows, name))
    if isinstance(part, Bars):
        heads = [part.name, part.unit or "count"]
        cells: list[list[Cell]] = [[label, value] for label, value in part.rows]
        return _section(part.title, name, _bars(part, name), _table(heads, cells, name))
    series = _limited(part.series)
    if not any(one.points for one in series):
        return _section(part.title, name, "<p>There is nothing to show.</p>", "")
    if isinstance(part, Lines):
        drawn = _lines(part, series, name)
    else:
        drawn = _stacks(part, series, name)
    unit = part.unit if isinstance(part, Lines) else COUNT
    return _section(
        part.title,
        name,
        _legend(series, isinstance(part, Lines)) + drawn,
        _numbers(series, unit, name),
    )


def _section(title: str, name: str, drawn: str, table: str) -> str:
    figure = f'<div class="drawn">{drawn}</div>' if drawn else ""
    kind = "both" if drawn and table else "one"
    return (
        f'<section class="{kind}" aria-labelledby="{name}"><h2 id="{name}">{safe(title)}</h2>'
        f"{figure}{table}</section>\n"
    )


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], name: str, kind: str = "plain"
) -> str:
    first = rows[0] if rows else [""] * len(columns)
    heads = "".join(_head(column, cell) for column, cell in zip(columns, first, strict=True))
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    left = len(rows) - ROWS_MAX
    note = f"<p>{left:,} more rows are not shown.</p>" if left > 0 else ""
    # The box scrolls, so it must be reached by keyboard.
    return (
        f'<div class="numbers" role="region" aria-labelledby="{name}" tabindex="0">'
        f'<table class="{kind}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{note}</div>"
    )


def _head(column: str, below: Cell) -> str:
    kind = ' class="number"' if isinstance(below, int | float) else ""
    return f'<th scope="col"{kind}>{safe(column, NAME_MAX // 2)}</th>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, int | float):
        return f'<td class="number">{plain_number(cell)}</td>'
    return f"<td>{safe('' if cell is None else cell)}</td>"


def _numbers(series: list[Series], unit: str, name: str) -> str:
    """The table of values over time."""
    values = [dict(one.points) for one in series]
    times = sorted({x for one in values for x in one})
    rows: list[list[Cell]] = [[moment_text(x), *(one.get(x) for one in values)] for x in times]
    ending = f" ({unit})" if unit else ""
    heads = ["time (UTC)", *(f"{one.name}{ending}" for one in series)]
    return _table(heads, rows, name, "times")


def _limited(series: list[Series]) -> list[Series]:
    """So many series as can be told apart; those that are left out are one."""
    if len(series) <= SERIES_MAX:
        return series
    rest: dict[float, float] = {}
    for one in series[SERIES_MAX - 1 :]:
        for x, y in one.points:
            rest[x] = rest.get(x, 0.0) + y
    return [*series[: SERIES_MAX - 1], Series(OTHERS, sorted(rest.items()))]


def _legend(series: list[Series], is_lines: bool) -> str:
    if len(series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 26 12" aria-hidden="true">{_sample(number, is_lines)}</svg>'
        f"{safe(one.name, NAME_MAX)}</li>"
        for number, one in enumerate(series)
    )
    return f"<ul>{items}</ul>"


def _sample(number: int, is_line: bool) -> str:
    if not is_line:
        return f'<rect class="bar c{number}" x="7" width="12" height="12" rx="2"/>'
    dash = _dash(number)
    return f'<line class="line c{number}" x1="1" y1="6" x2="25" y2="6" stroke-dasharray="{dash}"/>'


def _dash(number: int) -> str:
    return _DASHES[number % len(_DASHES)]


# ---- drawing


class _Frame:
    """Where values stand in the drawing."""

    def __init__(self, first_s: float, last_s: float, ticks: list[float], measure: Measure) -> None:
        self._first_s = first_s
        self._span_s = max(last_s - first_s, 1e-9)
        self._most = ticks[-1]
        self.ticks = ticks
        self.measure = measure
        self.times = time_ticks(first_s, last_s)

    def x(self, at_s: float) -> float:
        return _LEFT + (at_s - self._first_s) / self._span_s * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self._most * (_HEIGHT - _TOP - _BOTTOM)

    def drawn(self) -> str:
        """Grid and axes."""
        right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        found = [
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{self.y(tick):.1f}"'
            f' y2="{self.y(tick):.1f}"/><text x="{_LEFT - 8}" y="{self.y(tick) + 4:.1f}"'
            f' text-anchor="end">{safe(self.measure.text(tick))}</text>'
            for tick in self.ticks
        ]
        found += [
            f'<line class="tick" x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{low}"'
            f' y2="{low + 5}"/><text x="{self.x(at):.1f}" y="{low + 20}"'
            f' text-anchor="middle">{safe(text)}</text>'
            for at, text in self.times
        ]
        return "".join(found)


def _lines(part: Lines, series: list[Series], name: str) -> str:
    most_points = max(len(one.points) for one in series)
    count = -(-most_points // POINTS_MAX)  # that are drawn as one
    series = [Series(one.name, _thinned(one.points, count)) for one in series]
    kind = "dot" if most_points <= DOTS_MAX else "dot faint"
    points = [point for one in series for point in one.points]
    times = [x for x, _ in points]
    most = max(y for _, y in points)
    measure = measure_of(part.unit, most)
    ticks = [tick * measure.divisor for tick in value_ticks(most / measure.divisor)]
    frame = _Frame(min(times), max(times), ticks, measure)
    found = [frame.drawn()]
    for number, one in enumerate(series):
        way = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in one.points)
        found.append(
            f'<polyline class="line c{number}" stroke-dasharray="{_dash(number)}" points="{way}"/>'
        )
        for x, y in one.points:
            text = f"{one.name}, {moment_text(x)}: {measure.text(y)}"
            found.append(
                f'<circle class="{kind} c{number}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}"'
                f' r="3"><title>{safe(text)}</title></circle>'
            )
    note = f"<p>A point is the greatest of {count} values.</p>" if count > 1 else ""
    return _svg(part.title, name, _HEIGHT, found) + note


def _thinned(points: list[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """The greatest of so many points at a time: what is left out is never a peak."""
    groups = [points[first : first + count] for first in range(0, len(points), count)]
    return [max(group, key=lambda point: point[1]) for group in groups]


def _stacks(part: Stacks, series: list[Series], name: str) -> str:
    times = sorted({x for one in series for x, _ in one.points})
    values = [dict(one.points) for one in series]
    most = max(sum(one.get(x, 0.0) for one in values) for x in times)
    frame = _Frame(times[0], times[-1] + part.step_s, count_ticks(most), Measure(1.0, COUNT))
    width = max(frame.x(times[0] + part.step_s) - frame.x(times[0]) - 1.0, 0.5)
    width = min(width, 60.0)
    found = [frame.drawn()]
    for x in times:
        below = 0.0
        for number, one in enumerate(values):
            count = one.get(x, 0.0)
            if count:
                text = f"{series[number].name}, {moment_text(x)}: {plain_number(count)}"
                top, bottom = frame.y(below + count), frame.y(below)
                found.append(
                    f'<rect class="bar c{number}" x="{frame.x(x):.1f}" y="{top:.1f}"'
                    f' width="{width:.1f}" height="{bottom - top:.1f}">'
                    f"<title>{safe(text)}</title></rect>"
                )
            below += count
    return _svg(part.title, name, _HEIGHT, found)


def _bars(part: Bars, name: str) -> str:
    rows = part.rows[:BARS_MAX]
    if not rows:
        return "<p>There is nothing to show.</p>"
    most = max(value for _, value in rows) or 1.0
    measure = measure_of(part.unit, most)
    room = _WIDTH - _NAMES - 90.0
    found = []
    for number, (label, value) in enumerate(rows):
        y = _TOP + number * _BAR
        width = max(value / most * room, 1.0)
        short = _fitting(label, _NAMES - 20.0)
        found.append(
            f'<text x="{_NAMES - 8}" y="{y + 16}" text-anchor="end">{safe(short)}'
            f"<title>{safe(label)}</title></text>"
            f'<rect class="bar c0" x="{_NAMES}" y="{y + 3}" width="{width:.1f}"'
            f' height="{_BAR - 8}" rx="2"/>'
            f'<text x="{_NAMES + width + 6:.1f}" y="{y + 16}">{safe(measure.text(value))}</text>'
        )
    return _svg(part.title, name, 2 * _TOP + len(rows) * _BAR, found)


def _fitting(label: str, room: float) -> str:
    """As much of a name as there is room for; fonts differ, so it is on the safe side."""
    for number, letter in enumerate(label):
        room -= _letter(letter)
        if room < 0:
            return f"{label[: max(number - 1, 0)]}…"
    return label


def _letter(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return _LETTERS[0]
    if letter in "mwMW@%—…\ufffd" or not letter.isprintable():
        return _LETTERS[1]
    return _LETTERS[2] if letter.isupper() or not letter.isascii() else _LETTERS[3]


def _svg(title: str, name: str, height: float, drawn: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-labelledby="{name}-title">'
        f'<title id="{name}-title">{safe(title)}: the numbers are in the table</title>'
        f"{''.join(drawn)}</svg>"
    )
