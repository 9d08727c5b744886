"""Axes of charts: where ticks stand and what is written at them. Knows nothing of SVG or Spark.

Ticks of values are 1, 2 or 5 times a power of ten; ticks of times are full minutes, hours or days,
in UTC. Spans of time are shown in the unit that fits the longest of them.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
COUNT: Final = ""  # the unit of plain numbers
MS: Final = "ms"
# Steps between ticks of time.
_STEPS_S: Final = (
    *(1, 5, 15, 30),
    *(n * MINUTE_S for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_S for n in (1, 2, 3, 6, 12)),
    *(n * DAY_S for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_SPANS: Final = (("ms", 1.0, 2_000.0), ("s", 1e3, 120e3), ("min", 60e3, 7_200e3))
_HOURS: Final = ("h", 3_600e3)


@dataclass(frozen=True)
class Measure:
    """What values of an axis are divided by, and the unit that they have then."""

    divisor: float
    suffix: str

    def text(self, value: float) -> str:
        """A value as people read it."""
        found = plain_number(value / self.divisor)
        return f"{found} {self.suffix}" if self.suffix else found


def measure_of(unit: str, most: float) -> Measure:
    """How values up to this one are shown; milliseconds become seconds, minutes or hours."""
    if unit != MS:
        return Measure(1.0, unit)
    for suffix, divisor, below in _SPANS:
        if most < below:
            return Measure(divisor, suffix)
    return Measure(_HOURS[1], _HOURS[0])


def value_ticks(most: float, wanted: int = 5) -> list[float]:
    """From 0 to the first tick that is not below the greatest value."""
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(most / wanted))
    step = next(power * n for n in (1, 2, 5, 10) if most / (power * n) <= wanted)
    count = max(math.ceil(most / step - 1e-9), 1)
    return [round(step * n, 12) for n in range(count + 1)]


def count_ticks(most: float) -> list[float]:
    """Ticks of an axis that counts: whole numbers alone."""
    found = value_ticks(max(most, 1.0))
    return [tick for tick in found if tick == int(tick)]


def time_step_s(first_s: float, last_s: float, wanted: int) -> int:
    """The shortest step with which no more than so many ticks are in a span."""
    span_s = max(last_s - first_s, 1.0)
    return next((step for step in _STEPS_S if span_s / step <= wanted), _STEPS_S[-1])


def time_ticks(first_s: float, last_s: float, wanted: int = 7) -> list[tuple[float, str]]:
    """Full times between two moments, and their names."""
    step_s = time_step_s(first_s, last_s, wanted)
    start = math.ceil(first_s / step_s) * step_s
    return [(at, _time_name(at, step_s)) for at in range(start, math.floor(last_s) + 1, step_s)]


def _time_name(at_s: int, step_s: int) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    if step_s >= DAY_S or at_s % DAY_S == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M:%S}" if step_s < MINUTE_S else f"{at:%H:%M}"


def seconds_of(text: str) -> float:
    """The seconds since 1970 of a time in UTC, as reports have it."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def moment_text(at_s: float) -> str:
    """A moment in full, for tables; in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


def plain_number(value: float) -> str:
    """A number with as many digits as tell something."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
