"""The result: a table for people, coloured on a terminal, and JSON for later comparison."""

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leveret import build_info
from tools.benchmark.brokers import RABBITMQ_SERVER
from tools.benchmark.measure import medians
from tools.benchmark.scenarios import MEASURES, Bound, Figures, Scenario

ROOT: Final = Path(__file__).resolve().parents[2]
_WORDS: Final = {True: "met", False: "NOT MET", None: "unknown"}
_COLOURS: Final = {True: "green", False: "bold red", None: "yellow"}
_TITLES: Final = ("scenario", "broker", *(m.title for m in MEASURES.values()), "ratio", "must")


@dataclass(frozen=True)
class Row:
    """One scenario with the rounds of each broker."""

    scenario: Scenario
    ours: list[Figures]
    theirs: list[Figures]  # none without RabbitMQ

    @property
    def our_medians(self) -> Figures:
        return medians(self.ours)

    @property
    def their_medians(self) -> Figures | None:
        return medians(self.theirs) if self.theirs else None

    def verdicts(self) -> list[tuple[Bound, bool | None]]:
        """Each bound, and whether it is met."""
        ours, theirs = self.our_medians, self.their_medians
        return [(bound, bound.is_met(ours, theirs)) for bound in self.scenario.must]

    def ratio(self) -> float | None:
        """How many times as good as RabbitMQ: by latency where shown, else by the first figure."""
        theirs = self.their_medians
        if theirs is None:
            return None
        shows = self.scenario.shows
        name = "p50_us" if "p50_us" in shows else shows[0]
        ours = self.our_medians[name]
        pair = (ours, theirs[name]) if name == "rate" else (theirs[name], ours)
        return pair[0] / pair[1] if pair[1] else None


def show(rows: list[Row]) -> None:
    """Print the table."""
    if sys.stdout.isatty():
        _show_rich(rows)
    else:
        _show_plain(rows)


def _lines(row: Row) -> list[list[str]]:
    """The cells of one scenario: a line for each broker, without the verdicts."""
    lines = [[row.scenario.name, "Leveret", *_cells(row.scenario, row.our_medians)]]
    ratio = row.ratio()
    lines[0].append(f"{ratio:.1f}×" if ratio is not None else "–")
    theirs = row.their_medians
    if theirs is not None:
        lines.append(["", "RabbitMQ", *_cells(row.scenario, theirs), ""])
    return lines


def _cells(scenario: Scenario, figures: Figures) -> list[str]:
    return [
        measure.show(figures[name]) if name in scenario.shows else ""
        for name, measure in MEASURES.items()
    ]


def _show_plain(rows: list[Row]) -> None:
    lines = [list(_TITLES)]
    for row in rows:
        cells = _lines(row)
        musts = "; ".join(f"{bound}: {_WORDS[met]}" for bound, met in row.verdicts())
        lines += [[*line, musts if index == 0 else ""] for index, line in enumerate(cells)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_TITLES) - 1)]
    for line in lines:
        left = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(line[2:-1], widths[2:], strict=True)]
        print("  ".join([*left, *right, line[-1]]).rstrip())


def _show_rich(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=True)
    for index, title in enumerate(_TITLES):
        is_text = index < 2 or index == len(_TITLES) - 1
        table.add_column(title, justify="left" if is_text else "right")
    for row in rows:
        columns = ["\n".join(column) for column in zip(*_lines(row), strict=True)]
        musts = [f"[{_COLOURS[met]}]{bound}: {_WORDS[met]}[/]" for bound, met in row.verdicts()]
        table.add_row(*columns, "\n".join(musts))
    Console().print(table)


def save(rows: list[Row], facts: dict[str, Any], directory: Path) -> Path:
    """Write everything that was measured; returns the file."""
    scenarios = [
        {
            "name": row.scenario.name,
            "leveret": {"median": row.our_medians, "rounds": row.ours},
            "rabbitmq": {"median": row.their_medians, "rounds": row.theirs},
            "ratio": row.ratio(),
            "must": [{"bound": str(bound), "met": met} for bound, met in row.verdicts()],
        }
        for row in rows
    ]
    path = directory / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({**facts, "scenarios": scenarios}, indent=1) + "\n")
    return path


def machine_facts() -> dict[str, Any]:
    """What was measured, and on what."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": _git("rev-parse", "HEAD") or "none",
        "has_changes": bool(_git("status", "--porcelain")),
        "leveret": build_info.describe(),
        "rabbitmq": _rabbitmq_version(),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gb": round(memory_bytes / 1e9, 1),
            "kernel": platform.release(),
            "load_average": os.getloadavg(),
        },
    }


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _rabbitmq_version() -> str:
    library = RABBITMQ_SERVER.parents[1] / "lib"
    found = [path.name.partition("-")[2] for path in library.glob("rabbitmq_server-*")]
    return found[0] if found else "none"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
