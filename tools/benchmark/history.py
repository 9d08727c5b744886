"""`make bench-report`: draw all saved runs as a page of charts, and compare the last two."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from leveret.perf.chart import Chart, Series, page
from tools.benchmark.machine import ROOT
from tools.benchmark.measures import MEASURES
from tools.benchmark.results import SAVED, UNSAVED, load_all

PAGE: Final = ROOT / "build" / "bench" / "history.html"
_SHOWN: Final = ("cpu_us", "rate", "p50_us", "p99_us", "start_s", "memory_mb")

Run = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the history and return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-report", description="Draw the history.")
    parser.add_argument("folders", nargs="*", type=Path, default=[SAVED, UNSAVED])
    parser.add_argument("--out", type=Path, default=PAGE, help="file of the page")
    options = parser.parse_args(argv)
    runs = [run for run in load_all(options.folders) if "scenarios" in run]
    if not runs:
        print("bench-report: there are no saved runs; make bench SAVE=1 saves one", file=sys.stderr)
        return 1
    print(table(runs))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(history_page(runs))
    print(f"wrote {options.out}")
    return 0


def names(runs: list[Run]) -> dict[str, str]:
    """Return the names of all scenarios of all runs, by key."""
    return {row["key"]: row["name"] for run in runs for row in run["scenarios"]}


def value(run: Run, key: str, broker: str, measure: str) -> float | None:
    """Return one value of one run, or None if it was not measured."""
    for row in run["scenarios"]:
        if row["key"] == key:
            found = row[broker]["median"]
            return None if found is None else found.get(measure)
    return None


def table(runs: list[Run]) -> str:
    """Return a table of Leveret's values in the last two runs, with the change."""
    last = runs[-1]
    before = runs[-2] if len(runs) > 1 else None
    lines = [f"{'scenario':<58} {'figure':<12} {'before':>12} {'last':>12} {'change':>8}"]
    for key, name in names([last]).items():
        for measure in _SHOWN:
            now = value(last, key, "leveret", measure)
            if now is None:
                continue
            old = value(before, key, "leveret", measure) if before is not None else None
            lines.append(_table_line(name, measure, old, now))
            name = ""
    return "\n".join(lines)


def _table_line(name: str, measure: str, old: float | None, now: float) -> str:
    shown = MEASURES[measure]
    before = shown.show(old) if old is not None else "–"
    change = f"{now / old - 1:+.0%}" if old else "–"
    return f"{name[:58]:<58} {shown.title:<12} {before:>12} {shown.show(now):>12} {change:>8}"


def history_page(runs: list[Run]) -> str:
    """Return a page with a chart for each measure of each scenario, and a line for each broker."""
    labels = {float(index): _label(run) for index, run in enumerate(runs)}
    charts = []
    for key, name in names(runs).items():
        for measure in _SHOWN:
            series = [
                Series(title, _points(runs, key, broker, measure))
                for title, broker in (("Leveret", "leveret"), ("RabbitMQ", "rabbitmq"))
            ]
            lines = [each for each in series if each.points]
            if lines:
                charts.append(Chart(name, MEASURES[measure].title, lines, "run", labels))
    last = runs[-1]
    facts = [
        ("runs", str(len(runs))),
        ("last", f"{last['time'][:16]} {last['commit'][:8]}"),
        ("machine", f"{last['machine']['cores']} × {last['machine']['cpu']}"),
        ("load average", f"{last['machine']['load_average_before'][0]:.1f}"),
    ]
    return page("Leveret: history of the benchmark", facts, charts)


def _points(runs: list[Run], key: str, broker: str, measure: str) -> list[tuple[float, float]]:
    found = ((float(index), value(run, key, broker, measure)) for index, run in enumerate(runs))
    return [(index, figure) for index, figure in found if figure is not None]


def _label(run: Run) -> str:
    return f"{run['time'][5:10]} {run['commit'][:7]}"
