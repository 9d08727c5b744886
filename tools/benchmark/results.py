"""Rows of a run, and the JSON files of runs.

Runs are written below `build`, which is not in the repository. `--save` writes to `bench/results`,
which is.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.benchmark.machine import ROOT
from tools.benchmark.measure import medians
from tools.benchmark.measures import MEASURES, Bound, Figures
from tools.benchmark.scenarios import Scenario

SAVED: Final = ROOT / "bench" / "results"
UNSAVED: Final = ROOT / "build" / "bench" / "results"
# The ratio of a row compares the first of these measures that it shows.
_RATIO_BY: Final = ("p50_us", "rate", "start_s", "memory_mb")


@dataclass(frozen=True)
class Row:
    """One scenario with the results of each round and broker."""

    scenario: Scenario
    ours: list[Figures]
    theirs: list[Figures]  # empty without RabbitMQ

    @property
    def our_medians(self) -> Figures:
        return medians(self.ours)

    @property
    def their_medians(self) -> Figures | None:
        return medians(self.theirs) if self.theirs else None

    def verdicts(self) -> list[tuple[Bound, bool | None]]:
        """Return each bound with True if it is met, and None if that is unknown."""
        ours, theirs = self.our_medians, self.their_medians
        return [(bound, bound.is_met(ours, theirs)) for bound in self.scenario.must]

    def ratio(self) -> float | None:
        """Return how many times better than RabbitMQ, by the main measure of the row."""
        return self.ratios().get(self._ratio_by())

    def _ratio_by(self) -> str:
        shows = self.scenario.shows
        if "share" in shows:  # a row about throughput: its queues are full, so latency means little
            return "rate"
        return next(name for name in _RATIO_BY if name in shows)

    def ratios(self) -> dict[str, float]:
        """Return how many times better than RabbitMQ, for each shown measure."""
        ours, theirs = self.our_medians, self.their_medians
        if theirs is None:
            return {}
        found: dict[str, float] = {}
        for name in self.scenario.shows:
            best, other = ours[name], theirs[name]
            if not MEASURES[name].is_higher_better:
                best, other = other, best
            if other and name != "sync_us":
                found[name] = best / other
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.scenario.key,
            "name": self.scenario.name,
            "leveret": {"median": self.our_medians, "rounds": self.ours},
            "rabbitmq": {"median": self.their_medians, "rounds": self.theirs},
            "ratio": self.ratio(),
            "ratios": self.ratios(),
            "must": [{"bound": str(bound), "met": met} for bound, met in self.verdicts()],
        }


def save(found: dict[str, Any], *, keep: bool) -> Path:
    """Write a run to a file and return its path."""
    directory = SAVED if keep else UNSAVED
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{found['commit'][:8]}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def load_all(folders: list[Path]) -> list[dict[str, Any]]:
    """Return all runs in these folders, oldest first."""
    runs = [
        json.loads(path.read_text())
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.glob("*.json"))
    ]
    return sorted(runs, key=lambda run: str(run["time"]))
