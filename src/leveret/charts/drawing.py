"""Draw charts as SVG: lines, stacked bars over time, and horizontal bars.

`leveret.charts.page` limits the number of series before it calls these functions. This module
limits the points of a line and the number of bars.
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

from leveret.charts.axes import (
    COUNT,
    TIME_AXIS,
    Scale,
    Unit,
    count_ticks,
    linear_scale,
    log_scale,
    plain_number,
    time_text,
    unit_for,
    value_ticks,
)
from leveret.charts.charts import Bars, Lines, Point, Series, Stacks, safe_text

BARS_MAX: Final = 20
POINTS_MAX: Final = 400  # of a line
DOTS_MAX: Final = 60  # points of a line that has visible dots; more have only their tooltips

_WIDTH: Final = 720.0
_HEIGHT: Final = 290.0
_LEFT: Final = 68.0
_RIGHT: Final = 18.0
_TOP: Final = 12.0
_BOTTOM: Final = 34.0
_BAR: Final = 26.0
_BAR_WIDTH_MAX: Final = 60.0  # of a stacked bar
_NAMES: Final = 210.0  # width for the names of horizontal bars
# Estimated widths of letters: of Asian scripts, wide letters, capitals, all others.
_LETTER_WIDTHS: Final = (13.0, 11.5, 9.5, 7.6)
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")


class _Frame:
    """The axes of a drawing: maps values to coordinates, and draws grid and ticks."""

    def __init__(
        self, across: tuple[float, float], up: Scale, unit: Unit, x_ticks: list[tuple[float, str]]
    ) -> None:
        first, last = across
        # A chart of one point has a width too. Times are so large that 1e-9 would round to nothing.
        self._across = Scale(first, max(last, first + max(1e-9, abs(first) * 1e-9)), [])
        self._up = up
        self.unit = unit
        self._x_ticks = x_ticks

    def x(self, value: float) -> float:
        return _LEFT + self._across.position(value) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - self._up.position(value) * (_HEIGHT - _TOP - _BOTTOM)

    def draw(self) -> str:
        right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        found = [
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{self.y(tick):.1f}"'
            f' y2="{self.y(tick):.1f}"/><text x="{_LEFT - 8}" y="{self.y(tick) + 4:.1f}"'
            f' text-anchor="end">{safe_text(self.unit.text(tick))}</text>'
            for tick in self._up.ticks
        ]
        found += [
            f'<line class="tick" x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{low}"'
            f' y2="{low + 5}"/><text x="{self.x(at):.1f}" y="{low + 20}"'
            f' text-anchor="middle">{safe_text(text)}</text>'
            for at, text in self._x_ticks
        ]
        return "".join(found)


def draw_lines(part: Lines, series: list[Series], name: str, highest: float = 0.0) -> str:
    """Return a line chart. A long line shows the greatest value of each group of points.

    `highest` is the greatest value of all charts that share the y axis.
    """
    longest = max(len(one.points) for one in series)
    group = -(-longest // POINTS_MAX)
    series = [Series(one.name, _keep_peaks(one.points, group)) for one in series]
    kind = "dot" if longest <= DOTS_MAX else "dot faint"
    frame = _line_frame(part, series, highest)
    found = [frame.draw()]
    for number, one in enumerate(series):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in one.points)
        found.append(
            f'<polyline class="line c{number}" stroke-dasharray="{_dash(number)}" points="{path}"/>'
        )
        for x, y in one.points:
            text = f"{one.name}, {part.x_axis.text(x)}: {frame.unit.text(y)}"
            found.append(
                f'<circle class="{kind} c{number}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}"'
                f' r="3"><title>{safe_text(text)}</title></circle>'
            )
    note = f"<p>A point is the greatest of {group} values.</p>" if group > 1 else ""
    return _svg(part.title, name, _HEIGHT, found) + note


def _line_frame(part: Lines, series: list[Series], highest: float) -> _Frame:
    xs = sorted({x for one in series for x, _ in one.points})
    ys = [*(y for one in series for _, y in one.points), *([highest] if highest else [])]
    unit = unit_for(part.unit, max(ys))
    if part.is_log:
        up = log_scale(ys)
    else:
        ticks = value_ticks(max(ys) / unit.divisor)
        up = linear_scale([tick * unit.divisor for tick in ticks])
    return _Frame((xs[0], xs[-1]), up, unit, part.x_axis.ticks(xs))


def _keep_peaks(points: list[Point], group: int) -> list[Point]:
    """Return the greatest of every `group` points, so that no peak is left out."""
    groups = [points[first : first + group] for first in range(0, len(points), group)]
    return [max(each, key=lambda point: point[1]) for each in groups]


def draw_stacks(part: Stacks, series: list[Series], name: str) -> str:
    """Return stacked bars over time."""
    times = sorted({x for one in series for x, _ in one.points})
    values = [dict(one.points) for one in series]
    highest = max(sum(one.get(x, 0.0) for one in values) for x in times)
    end_s = times[-1] + part.step_s
    x_ticks = TIME_AXIS.ticks([times[0], end_s])
    scale = linear_scale(count_ticks(highest))
    frame = _Frame((times[0], end_s), scale, Unit(1.0, COUNT), x_ticks)
    width = max(frame.x(times[0] + part.step_s) - frame.x(times[0]) - 1.0, 0.5)
    width = min(width, _BAR_WIDTH_MAX)
    found = [frame.draw()]
    for x in times:
        below = 0.0
        for number, one in enumerate(values):
            count = one.get(x, 0.0)
            if count:
                text = f"{series[number].name}, {time_text(x)}: {plain_number(count)}"
                top, bottom = frame.y(below + count), frame.y(below)
                found.append(
                    f'<rect class="bar c{number}" x="{frame.x(x):.1f}" y="{top:.1f}"'
                    f' width="{width:.1f}" height="{bottom - top:.1f}">'
                    f"<title>{safe_text(text)}</title></rect>"
                )
            below += count
    return _svg(part.title, name, _HEIGHT, found)


def draw_bars(part: Bars, name: str, highest: float = 0.0) -> str:
    """Return horizontal bars, BARS_MAX at most. `highest` is as in `draw_lines`."""
    rows = part.rows[:BARS_MAX]
    if not rows:
        return "<p>There is nothing to show.</p>"
    highest = max(highest, *(value for _, value in rows)) or 1.0
    unit = unit_for(part.unit, highest)
    room = _WIDTH - _NAMES - 90.0
    found = []
    for number, (label, value) in enumerate(rows):
        y = _TOP + number * _BAR
        width = max(value / highest * room, 1.0)
        short = _fit(label, _NAMES - 20.0)
        found.append(
            f'<text x="{_NAMES - 8}" y="{y + 16}" text-anchor="end">{safe_text(short)}'
            f"<title>{safe_text(label)}</title></text>"
            f'<rect class="bar c0" x="{_NAMES}" y="{y + 3}" width="{width:.1f}"'
            f' height="{_BAR - 8}" rx="2"/>'
            f'<text x="{_NAMES + width + 6:.1f}" y="{y + 16}">{safe_text(unit.text(value))}</text>'
        )
    return _svg(part.title, name, 2 * _TOP + len(rows) * _BAR, found)


def _fit(label: str, room: float) -> str:
    """Return as much of a label as fits. Fonts differ, so the estimate is generous."""
    for number, letter in enumerate(label):
        room -= _letter_width(letter)
        if room < 0:
            return f"{label[: max(number - 1, 0)]}…"
    return label


def _letter_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return _LETTER_WIDTHS[0]
    if letter in "mwMW@%—…\ufffd" or not letter.isprintable():
        return _LETTER_WIDTHS[1]
    return _LETTER_WIDTHS[2] if letter.isupper() or not letter.isascii() else _LETTER_WIDTHS[3]


def draw_legend_mark(number: int, is_line: bool) -> str:
    """Return the mark of a series in the legend: a piece of its line, or a box."""
    if not is_line:
        return f'<rect class="bar c{number}" x="7" width="12" height="12" rx="2"/>'
    dash = _dash(number)
    return f'<line class="line c{number}" x1="1" y1="6" x2="25" y2="6" stroke-dasharray="{dash}"/>'


def _dash(number: int) -> str:
    return _DASHES[number % len(_DASHES)]


def _svg(title: str, name: str, height: float, drawn: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-labelledby="{name}-title">'
        f'<title id="{name}-title">{safe_text(title)}: the numbers are in the table</title>'
        f"{''.join(drawn)}</svg>"
    )
