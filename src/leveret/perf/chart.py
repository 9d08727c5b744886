"""Line charts as one self-contained HTML page, without scripts, in light and dark colours.

The lines are SVG, stretched to the available width. All text is HTML beside the SVG, so that it
stays readable on a phone. Below each chart is a table with the exact numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

Point = tuple[float, float]

_WIDTH: Final = 1000.0  # of the drawing, in its own units
_HEIGHT: Final = 300.0
_Y_TICKS: Final = 5
_X_TICKS: Final = 5
_COLOURS: Final = 6  # in the style sheet; more lines repeat them, dashed
TABLE_ROWS_MAX: Final = 600


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    points: list[Point]


@dataclass(frozen=True)
class Chart:
    """Several lines on the same axes."""

    title: str
    unit: str
    series: list[Series]
    x_title: str = "seconds"
    x_labels: dict[float, str] = field(default_factory=dict)  # text shown instead of the number
    is_log: bool = False


@dataclass(frozen=True)
class Scale:
    """Maps values to positions between 0 and 1, and holds the labelled values of an axis."""

    low: float
    high: float
    ticks: list[float]
    is_log: bool = False

    def place(self, value: float) -> float:
        if self.is_log:
            value, low, high = (math.log10(max(v, self.low)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low)


def linear(high: float) -> Scale:
    """Return a scale from 0 to a round number that is at least `high`."""
    high = high if high > 0 else 1.0
    step = _round_step(high / _Y_TICKS)
    count = math.ceil(high / step - 1e-9)
    return Scale(0.0, count * step, [step * n for n in range(count + 1)])


def logarithmic(values: list[float]) -> Scale:
    """Return a scale between two powers of ten that contains all values over 0."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)) + 1e-9)
    high = max(math.ceil(math.log10(max(positive)) - 1e-9), low + 1)
    return Scale(10.0**low, 10.0**high, [10.0**n for n in range(low, high + 1)], True)


def _round_step(rough: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 5):
        if rough <= factor * power * (1 + 1e-9):
            return factor * power
    return 10 * power


def short_number(value: float) -> str:
    """Format a number for an axis: few digits, with k, M or G."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def page(title: str, facts: Sequence[tuple[str, str]], charts: Sequence[Chart]) -> str:
    """Return the whole page as HTML."""
    rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    body = "".join(draw(chart) for chart in charts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1><dl>{rows}</dl>{body}</body></html>\n"
    )


def draw(chart: Chart) -> str:
    """Return one chart as a section of the page."""
    values = [y for series in chart.series for _, y in series.points]
    xs = sorted({x for series in chart.series for x, _ in series.points})
    if not values:
        return f"<section><h2>{escape(chart.title)}</h2><p>No measurements.</p></section>"
    scale = logarithmic(values) if chart.is_log else linear(max(values))
    across = Scale(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1, [])
    lines = "".join(
        _line(series, index, across, scale) for index, series in enumerate(chart.series)
    )
    grid = "".join(
        f'<line class="grid" x1="0" x2="{_WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in (_HEIGHT * (1 - scale.place(tick)) for tick in scale.ticks)
    )
    return (
        f"<section><h2>{escape(chart.title)} <small>{escape(chart.unit)}</small></h2>"
        f'<p class="legend">{_legend(chart)}</p>'
        f'<div class="plot"><div class="y">{_y_labels(scale)}</div>'
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(chart.title)}">{grid}{lines}</svg>'
        f'<div class="x">{_x_labels(chart, xs, across)}</div></div>'
        f"{_table(chart, xs)}</section>"
    )


def _line(series: Series, index: int, across: Scale, scale: Scale) -> str:
    places = [(_WIDTH * across.place(x), _HEIGHT * (1 - scale.place(y))) for x, y in series.points]
    kind = f"c{index % _COLOURS}" + (" dashed" if index >= _COLOURS else "")
    if len(places) == 1:  # a line needs two points
        (x, y) = places[0]
        places = [(max(0.0, x - 8), y), (x + 8, y)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="{kind}" points="{points}"/>'


def _legend(chart: Chart) -> str:
    return " ".join(
        f'<span class="c{index % _COLOURS}"><i></i>{escape(series.name)}</span>'
        for index, series in enumerate(chart.series)
    )


def _y_labels(scale: Scale) -> str:
    return "".join(
        f'<span style="bottom:{100 * scale.place(tick):.1f}%">{short_number(tick)}</span>'
        for tick in scale.ticks
    )


def _x_labels(chart: Chart, xs: list[float], across: Scale) -> str:
    every = max(1, math.ceil(len(xs) / _X_TICKS))
    labels = "".join(
        f'<span style="left:{100 * across.place(x):.1f}%">'
        f"{escape(chart.x_labels.get(x) or short_number(x))}</span>"
        for x in xs[::every]
    )
    return f"{labels}<em>{escape(chart.x_title)}</em>"


def _table(chart: Chart, xs: list[float]) -> str:
    columns = [dict(series.points) for series in chart.series]
    head = "".join(f"<th>{escape(series.name)}</th>" for series in chart.series)
    rows = "".join(
        f"<tr><th>{escape(chart.x_labels.get(x) or f'{x:g}')}</th>"
        + "".join(f"<td>{f'{c[x]:,.4g}' if x in c else ''}</td>" for c in columns)
        + "</tr>"
        for x in xs[:TABLE_ROWS_MAX]
    )
    return (
        f"<details><summary>As a table</summary><div><table><tr><th>{escape(chart.x_title)}</th>"
        f"{head}</tr>{rows}</table></div></details>"
    )


STYLE: Final = """
:root{color-scheme:light dark;--fg:#1b1f24;--dim:#59636e;--bg:#fff;--line:#d5dae0;
--c0:#0b61c4;--c1:#b35900;--c2:#12733d;--c3:#b3134f;--c4:#6a3fc0;--c5:#5b6672}
@media(prefers-color-scheme:dark){:root{--fg:#e6e9ed;--dim:#9aa5b1;--bg:#14171b;--line:#333a42;
--c0:#6cb0ff;--c1:#f2a65a;--c2:#62d394;--c3:#ff7fa5;--c4:#bd9cff;--c5:#a9b4c0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--bg);color:var(--fg);
font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .25rem}
small,em,dt{color:var(--dim);font-weight:400;font-style:normal}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.5rem 1rem}
dd{margin:0;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.legend{margin:.25rem 0;display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.9rem}
.legend i{display:inline-block;width:1.1rem;border-top:3px solid;margin:0 .4rem .25rem 0}
.plot{position:relative;margin:.5rem 1.2rem 2.6rem 3rem}
svg{display:block;width:100%;height:14rem;overflow:visible}
polyline{fill:none;stroke-width:2;stroke:currentColor;vector-effect:non-scaling-stroke}
.dashed{stroke-dasharray:6 4}
.grid{stroke:var(--line);vector-effect:non-scaling-stroke}
.y span,.x span{position:absolute;font-size:.75rem;color:var(--dim);white-space:nowrap}
.y{position:absolute;inset:0 100% 0 -3rem;width:2.7rem}
.y span{right:0;transform:translateY(50%)}
.x{position:absolute;left:0;right:0;top:100%;height:1.2rem}
.x span{transform:translateX(-50%);top:.2rem}
.x em{position:absolute;right:0;top:1.3rem;font-size:.75rem}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}
.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
details div{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .6rem;text-align:right;border-bottom:1px solid var(--line)}
"""
