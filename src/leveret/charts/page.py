"""A page of charts as one HTML file that needs no other file.

Each chart is SVG with a table of its numbers beside it. The page has no scripts, and its
Content-Security-Policy refuses any. It follows the reader's choice of light or dark, and can be
printed. At most `SERIES_MAX` series are drawn; the others are summed into one series. At most
`ROWS_MAX` rows of a table are shown.
"""

import html
from collections.abc import Sequence
from typing import Final

from leveret.charts.axes import COUNT, TIME_AXIS, XAxis, plain_number
from leveret.charts.charts import Bars, Cell, Lines, Link, Page, Part, Series, Table, safe_text
from leveret.charts.drawing import draw_bars, draw_legend_mark, draw_lines, draw_stacks
from leveret.charts.style import STYLE

SERIES_MAX: Final = 8  # as many as the style sheet has colours
ROWS_MAX: Final = 500
NAME_MAX: Final = 60  # characters of a series in the legend; half of it in a heading
FIGURE_MAX: Final = 14  # characters of a figure in large letters; longer ones are smaller
OTHERS: Final = "others"
COLUMNS_BESIDE_MAX: Final = 5  # columns of a table that stands beside its chart
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page_html(page: Page) -> str:
    """Return the whole page."""
    figures = "".join(_figure(name, value) for name, value in page.figures)
    highest = _scales(page.parts)
    parts = "".join(_part(part, f"part{number}", highest) for number, part in enumerate(page.parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe_text(page.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>{safe_text(page.title)}</h1><p>{safe_text(page.about)}</p></header>\n"
        f"<main><dl>{figures}</dl>{parts}</main></body></html>\n"
    )


def _figure(name: str, value: str) -> str:
    kind = ' class="long"' if len(value) > FIGURE_MAX else ""
    return f"<div><dt>{safe_text(name)}</dt><dd{kind}>{safe_text(value)}</dd></div>"


def _scales(parts: Sequence[Part]) -> dict[tuple[str, str], float]:
    """Return the greatest value of the charts that share a scale, by its name and unit."""
    found: dict[tuple[str, str], float] = {}
    for part in parts:
        if isinstance(part, Lines):
            values = [y for one in part.series for _, y in one.points]
        elif isinstance(part, Bars):
            values = [value for _, value in part.rows]
        else:
            continue
        if part.scale and values:
            key = (part.scale, part.unit)
            found[key] = max(found.get(key, 0.0), *values)
    return found


def _part(part: Part, name: str, highest: dict[tuple[str, str], float]) -> str:
    if isinstance(part, Table):
        return _section(part.title, name, "", _table(part.columns, part.rows, name))
    if isinstance(part, Bars):
        headings = [part.name, part.unit or "count"]
        cells: list[list[Cell]] = [[label, value] for label, value in part.rows]
        drawing = draw_bars(part, name, highest.get((part.scale, part.unit), 0.0))
        return _section(part.title, name, drawing, _table(headings, cells, name))
    series = _limit_series(part.series)
    if not any(one.points for one in series):
        return _section(part.title, name, "<p>There is nothing to show.</p>", "")
    if isinstance(part, Lines):
        top = highest.get((part.scale, part.unit), 0.0)
        drawing, unit, x_axis = draw_lines(part, series, name, top), part.unit, part.x_axis
    else:
        drawing, unit, x_axis = draw_stacks(part, series, name), COUNT, TIME_AXIS
    legend = _legend(series, is_lines=isinstance(part, Lines))
    table = _series_table(series, unit, x_axis, name)
    is_wide = len(series) >= COLUMNS_BESIDE_MAX
    return _section(part.title, name, legend + drawing, table, is_wide=is_wide)


def _section(title: str, name: str, drawing: str, table: str, *, is_wide: bool = False) -> str:
    """Return a chart with its table: beside it, or below it if the table is wide."""
    figure = f'<div class="drawn">{drawing}</div>' if drawing else ""
    kind = "both" if drawing and table and not is_wide else "one"
    return (
        f'<section class="{kind}" aria-labelledby="{name}"><h2 id="{name}">{safe_text(title)}</h2>'
        f"{figure}{table}</section>\n"
    )


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], name: str, kind: str = "plain"
) -> str:
    first = rows[0] if rows else [""] * len(columns)
    headings = "".join(_heading(column, cell) for column, cell in zip(columns, first, strict=True))
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    left = len(rows) - ROWS_MAX
    note = f"<p>{left:,} more rows are not shown.</p>" if left > 0 else ""
    # tabindex: the box scrolls, so it must be reachable by keyboard.
    return (
        f'<div class="numbers" role="region" aria-labelledby="{name}" tabindex="0">'
        f'<table class="{kind}">'
        f"<thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>{note}</div>"
    )


def _heading(column: str, first_cell: Cell) -> str:
    kind = ' class="number"' if isinstance(first_cell, int | float) else ""
    return f'<th scope="col"{kind}>{safe_text(column, NAME_MAX // 2)}</th>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, int | float):
        return f'<td class="number">{plain_number(cell)}</td>'
    if isinstance(cell, Link):
        target = html.escape(cell.address)
        return f'<td><a href="{target}" rel="noreferrer">{safe_text(cell.text)}</a></td>'
    return f"<td>{safe_text('' if cell is None else cell)}</td>"


def _series_table(series: list[Series], unit: str, x_axis: XAxis, name: str) -> str:
    """Return the table beside a chart: a row for each x, a column for each series."""
    values = [dict(one.points) for one in series]
    xs = sorted({x for one in values for x in one})
    rows: list[list[Cell]] = [[x_axis.text(x), *(one.get(x) for one in values)] for x in xs]
    suffix = f" ({unit})" if unit else ""
    headings = [x_axis.title, *(f"{one.name}{suffix}" for one in series)]
    return _table(headings, rows, name, "times")


def _limit_series(series: list[Series]) -> list[Series]:
    """Return at most SERIES_MAX series; the last one is the sum of the others."""
    if len(series) <= SERIES_MAX:
        return series
    rest: dict[float, float] = {}
    for one in series[SERIES_MAX - 1 :]:
        for x, y in one.points:
            rest[x] = rest.get(x, 0.0) + y
    return [*series[: SERIES_MAX - 1], Series(OTHERS, sorted(rest.items()))]


def _legend(series: list[Series], *, is_lines: bool) -> str:
    if len(series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 26 12" aria-hidden="true">{draw_legend_mark(number, is_lines)}'
        f"</svg>{safe_text(one.name, NAME_MAX)}</li>"
        for number, one in enumerate(series)
    )
    return f"<ul>{items}</ul>"
