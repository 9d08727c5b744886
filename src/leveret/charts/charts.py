"""The parts of a page of charts, as plain data: figures, line charts, bars and tables.

`leveret.charts.page` turns a `Page` into HTML. This module also owns `safe_text`, which every text
of a page passes through: names and values may come from a message, and so from an attacker.
"""

import html
from dataclasses import dataclass, field
from typing import Final

from leveret.charts.axes import COUNT, TIME_AXIS, XAxis

TEXT_MAX: Final = 200  # characters of one cell

Point = tuple[float, float]


@dataclass(frozen=True)
class Link:
    """A cell that leads to another page. The address is the caller's own, never of a message."""

    text: str
    address: str


Cell = str | float | Link | None


@dataclass(frozen=True)
class Series:
    """Named values by x. The x of `Stacks`, and of `Lines` over time, is seconds since 1970."""

    name: str
    points: list[Point]


@dataclass(frozen=True)
class Lines:
    """A line chart, over time unless `x_axis` is another axis."""

    title: str
    series: list[Series]
    unit: str = COUNT
    x_axis: XAxis = TIME_AXIS
    is_log: bool = False  # the y axis has powers of ten
    scale: str = ""  # charts of a page with the same name here have the same y axis


@dataclass(frozen=True)
class Stacks:
    """Stacked bars: counts over time, one bar for each step of `step_s` seconds."""

    title: str
    series: list[Series]
    step_s: int


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: one value for each name, the greatest first."""

    title: str
    name: str  # heading of the column of names
    rows: list[tuple[str, float]]
    unit: str = COUNT
    scale: str = ""  # as in `Lines`


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


Part = Lines | Stacks | Bars | Table


@dataclass(frozen=True)
class Page:
    """A page: a title, a line about it, figures in large letters, then charts and tables."""

    title: str
    about: str
    figures: list[tuple[str, str]]  # name and value
    parts: list[Part] = field(default_factory=list)


def safe_text(value: object, length_max: int = TEXT_MAX) -> str:
    """Return a value as HTML text: cut, escaped, and with � for characters that do not print."""
    text = str(value)
    cut = text if len(text) <= length_max else f"{text[: length_max - 1]}…"
    return html.escape("".join(c if c.isprintable() else "\ufffd" for c in cut))
