"""Axes of charts: the positions of ticks and the texts beside them. Knows nothing of SVG.

Ticks of numbers are 1, 2 or 5 times a power of ten. Ticks of times are full minutes, hours or days,
in UTC. Durations in milliseconds are shown in the unit that suits the longest of them.
"""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
COUNT: Final = ""  # the unit of plain numbers
MS: Final = "ms"
TICKS: Final = 5  # wanted at a y axis
TIME_TICKS: Final = 7  # wanted at an x axis
# Steps between ticks of time.
_STEPS_S: Final = (
    *(1, 5, 15, 30),
    *(n * MINUTE_S for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_S for n in (1, 2, 3, 6, 12)),
    *(n * DAY_S for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
# Unit, its milliseconds, and the value in milliseconds from which the next unit is used.
_DURATIONS: Final = (("ms", 1.0, 2_000.0), ("s", 1e3, 120e3), ("min", 60e3, 7_200e3))
_HOURS: Final = ("h", 3_600e3)


@dataclass(frozen=True)
class Unit:
    """The unit that values of an axis are shown in, and the divisor that converts to it."""

    divisor: float
    suffix: str

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        number = plain_number(value / self.divisor)
        return f"{number} {self.suffix}" if self.suffix else number


def unit_for(unit: str, highest: float) -> Unit:
    """Return the unit for values up to `highest`; ms become seconds, minutes or hours."""
    if unit != MS:
        return Unit(1.0, unit)
    for suffix, divisor, below in _DURATIONS:
        if highest < below:
            return Unit(divisor, suffix)
    return Unit(_HOURS[1], _HOURS[0])


@dataclass(frozen=True)
class Scale:
    """Maps values to positions between 0 and 1, and holds the ticks of an axis."""

    low: float
    high: float
    ticks: list[float]
    is_log: bool = False

    def position(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log10(max(v, self.low)) for v in (value, low, high))
        return (value - low) / (high - low)


def linear_scale(ticks: list[float]) -> Scale:
    """Return a scale from the first tick to the last."""
    return Scale(ticks[0], ticks[-1], ticks)


def log_scale(values: list[float]) -> Scale:
    """Return a scale between two powers of ten that contains all values over 0."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)) + 1e-9)
    high = max(math.ceil(math.log10(max(positive)) - 1e-9), low + 1)
    return Scale(10.0**low, 10.0**high, [10.0**n for n in range(low, high + 1)], is_log=True)


def value_ticks(highest: float) -> list[float]:
    """Return ticks from 0 to the first tick that is at least `highest`."""
    if not highest > 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    step = _round_step(highest, TICKS)
    count = max(math.ceil(highest / step - 1e-9), 1)
    return [round(step * n, 12) for n in range(count + 1)]


def count_ticks(highest: float) -> list[float]:
    """Return the ticks of an axis that counts: whole numbers only."""
    return [tick for tick in value_ticks(max(highest, 1.0)) if tick == int(tick)]


def range_ticks(first: float, last: float) -> list[float]:
    """Return round numbers from `first` to `last`."""
    if not last > first:
        return [first]
    step = _round_step(last - first, TIME_TICKS)
    start, end = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
    return [round(step * n, 12) for n in range(start, end + 1)]


def _round_step(span: float, wanted: int) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that gives at most `wanted` steps."""
    power = 10.0 ** math.floor(math.log10(span / wanted))
    return next(power * n for n in (1, 2, 5, 10) if span / (power * n) <= wanted)


def time_step_s(first_s: float, last_s: float, wanted: int) -> int:
    """Return the shortest step that gives at most `wanted` ticks."""
    span_s = max(last_s - first_s, 1.0)
    return next((step for step in _STEPS_S if span_s / step <= wanted), _STEPS_S[-1])


def time_ticks(first_s: float, last_s: float) -> list[tuple[float, str]]:
    """Return full times between two times, with their texts."""
    step_s = time_step_s(first_s, last_s, TIME_TICKS)
    start = math.ceil(first_s / step_s) * step_s
    return [(at, _tick_text(at, step_s)) for at in range(start, math.floor(last_s) + 1, step_s)]


def _tick_text(at_s: int, step_s: int) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    if step_s >= DAY_S or at_s % DAY_S == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M:%S}" if step_s < MINUTE_S else f"{at:%H:%M}"


@dataclass(frozen=True)
class XAxis:
    """The horizontal axis of a line chart: times, numbers, or labels in place of numbers."""

    title: str
    is_time: bool = False  # x is seconds since 1970
    labels: dict[float, str] = field(default_factory=dict)

    def ticks(self, xs: list[float]) -> list[tuple[float, str]]:
        """Return ticks and their texts for the sorted x values of a chart."""
        if self.is_time:
            return time_ticks(xs[0], xs[-1])
        if self.labels:
            every = math.ceil(len(xs) / TICKS)
            return [(x, self.text(x)) for x in xs[::every]]
        return [(x, plain_number(x)) for x in range_ticks(xs[0], xs[-1])]

    def text(self, x: float) -> str:
        """Return an x value in full, for tables."""
        if self.is_time:
            return time_text(x)
        return self.labels.get(x) or plain_number(x)


TIME_AXIS: Final = XAxis("time (UTC)", is_time=True)


def parse_time_s(text: str) -> float:
    """Return the seconds since 1970 of a UTC time in ISO 8601."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def time_text(at_s: float) -> str:
    """Return a time as date, hour and minute, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


def plain_number(value: float) -> str:
    """Return a number with two or three significant digits, or in full if it is whole."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) < 1:
        return f"{value:.2g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
