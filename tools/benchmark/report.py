"""Print the result of a run as a table, coloured on a terminal, and as Markdown for the docs."""

import sys
from pathlib import Path
from typing import Any, Final

from tools.benchmark.machine import ROOT
from tools.benchmark.measures import MEASURES, Figures
from tools.benchmark.results import Row
from tools.benchmark.scenarios import SCENARIOS, Scenario

PAGE: Final = ROOT / "docs" / "performance.md"
_BEGIN: Final = "<!-- figures: written by tools/bench.py --markdown -->"
_END: Final = "<!-- end of figures -->"
_WORDS: Final = {True: "met", False: "NOT MET", None: "unknown"}
_COLOURS: Final = {True: "green", False: "bold red", None: "yellow"}


def show(rows: list[Row]) -> None:
    """Print the table."""
    if sys.stdout.isatty():
        _show_rich(rows)
    else:
        _show_plain(rows)


def _columns(rows: list[Row]) -> list[str]:
    """Return the measures that at least one row shows."""
    return [name for name in MEASURES if any(name in row.scenario.shows for row in rows)]


def _lines(row: Row, columns: list[str]) -> list[list[str]]:
    """Return the cells of one scenario: a line for each broker, without the bounds."""
    ratio = row.ratio()
    shown = f"{ratio:.1f}×" if ratio is not None else "–"
    cells = _cells(row.scenario, row.our_medians, columns)
    lines = [[row.scenario.name, "Leveret", *cells, shown]]
    theirs = row.their_medians
    if theirs is not None:
        lines.append(["", "RabbitMQ", *_cells(row.scenario, theirs, columns), ""])
    return lines


def _cells(scenario: Scenario, figures: Figures, columns: list[str]) -> list[str]:
    return [
        MEASURES[name].show(figures[name]) if name in scenario.shows else "" for name in columns
    ]


def _show_plain(rows: list[Row]) -> None:
    columns = _columns(rows)
    titles = ["scenario", "broker", *(MEASURES[name].title for name in columns), "ratio"]
    table = [titles, *(line for row in rows for line in _lines(row, columns))]
    widths = [max(len(line[index]) for line in table) for index in range(len(titles))]
    print(_aligned(titles, widths))
    for row in rows:
        for line in _lines(row, columns):
            print(_aligned(line, widths))
        for bound, met in row.verdicts():
            print(f"    must: {bound}: {_WORDS[met]}")


def _aligned(line: list[str], widths: list[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
    return "  ".join([*left, *right]).rstrip()


def _show_rich(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = _columns(rows)
    table = Table(show_lines=True)
    titles = ["scenario", "broker", *(MEASURES[name].title for name in columns), "ratio", "must"]
    for index, title in enumerate(titles):
        is_text = index < 2 or index == len(titles) - 1
        table.add_column(title, justify="left" if is_text else "right")
    for row in rows:
        cells = ["\n".join(column) for column in zip(*_lines(row, columns), strict=True)]
        musts = [f"[{_COLOURS[met]}]{bound}: {_WORDS[met]}[/]" for bound, met in row.verdicts()]
        table.add_row(*cells, "\n".join(musts))
    Console().print(table)


def markdown(found: dict[str, Any]) -> str:
    """Return a saved run as the table of the docs: bounds, goals and results."""
    measured = {row["key"]: row for row in found["scenarios"]}
    lines = [_conditions(found), "", "| path | must | goal | Leveret | RabbitMQ | ratio |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    lines += [_markdown_row(scenario, measured.get(scenario.key)) for scenario in SCENARIOS]
    return "\n".join(lines)


def _conditions(found: dict[str, Any]) -> str:
    machine = found["machine"]
    before, after = machine["load_average_before"][0], machine["load_average_after"][0]
    commit = found["commit"][:8] + (" with changes" if found["has_changes"] else "")
    return (
        f"Measured {found['time'][:10]} at {commit}: {found['leveret']}, RabbitMQ "
        f"{found['rabbitmq']}, {machine['cores']} cores of {machine['cpu']}, Linux "
        f"{machine['kernel']}, {found['rounds']} rounds of {found['seconds']:g} s, load average "
        f"{before:.1f} before and {after:.1f} after."
    )


def _markdown_row(scenario: Scenario, row: dict[str, Any] | None) -> str:
    must = "; ".join(str(bound) for bound in scenario.must) or "–"
    goal = scenario.goal or "–"
    if row is None:
        return f"| {scenario.name} | {must} | {goal} | not measured | not measured | – |"
    faults = [each["bound"] for each in row["must"] if each["met"] is False]
    ours = _markdown_cell(scenario, row["leveret"]["median"])
    theirs = row["rabbitmq"]["median"]
    other = _markdown_cell(scenario, theirs) if theirs else "–"
    ratio = f"{row['ratio']:.1f}×" if row["ratio"] is not None else "–"
    verdict = " (**not met**)" if faults else ""
    return f"| {scenario.name} | {must}{verdict} | {goal} | {ours} | {other} | {ratio} |"


def _markdown_cell(scenario: Scenario, figures: Figures) -> str:
    return ", ".join(
        f"{MEASURES[name].show(figures[name])}{_unit(name)}"
        for name in MEASURES
        if name in scenario.shows and name in figures and name not in _hidden(scenario)
    )


def _hidden(scenario: Scenario) -> tuple[str, ...]:
    """Return the measures that the docs leave out, so that a row shows one thing.

    Without a rate limit, latencies only tell how long the queue is.
    """
    if "share" in scenario.shows:
        return ("p50_us", "p95_us", "p99_us", "memory_mb")
    return ("rate", "p95_us") if "p50_us" in scenario.shows else ()


def _unit(name: str) -> str:
    units = {
        "rate": "/s",
        "share": " of sent",
        "cpu_us": " µs CPU",
        "fair": " least share",
        "start_s": " s",
        "memory_mb": " MB",
        "sync_us": " µs sync",
        "kept": " kept",
        "scrape_s": " s scrape",
        "list_s": " s list",
    }
    return units.get(name) or f" µs {name.partition('_')[0]}"


def write_page(found: dict[str, Any], page: Path = PAGE) -> None:
    """Write the table of a run to its place in the docs."""
    text = page.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no place for results")
    page.write_text(f"{before}{_BEGIN}\n\n{markdown(found)}\n\n{_END}{after}")
