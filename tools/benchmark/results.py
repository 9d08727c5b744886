"""Rows of a run, and the JSON files in which runs are kept.

Runs are written below `build`, which is nobody's history; `--save` writes to `bench/results`, which
belongs to the repository.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.benchmark.bounds import MEASURES, Bound, Figures
from tools.benchmark.machine import ROOT
from tools.benchmark.measure import medians
from tools.benchmark.scenarios import Scenario

KEPT: Final = ROOT / "bench" / "results"
PASSING: Final = ROOT / "build" / "bench" / "results"
# What a row's ratio is about: the first of these that it shows.
_RATIO_BY: Final = ("p50_us", "rate", "start_s", "memory_mb")


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
        """How many times as good as RabbitMQ: by latency where that is the point, else by rate."""
        return self.ratios().get(self._ratio_by())

    def _ratio_by(self) -> str:
        shows = self.scenario.shows
        if "share" in shows:  # a row about flow: its latencies are those of full queues
            return "rate"
        return next(name for name in _RATIO_BY if name in shows)

    def ratios(self) -> dict[str, float]:
        """How many times as good as RabbitMQ, by each figure that is shown."""
        ours, theirs = self.our_medians, self.their_medians
        if theirs is None:
            return {}
        found: dict[str, float] = {}
        for name in self.scenario.shows:
            best, other = ours[name], theirs[name]
            if not MEASURES[name].is_more_better:
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
    """Write a run; returns the file."""
    directory = KEPT if keep else PASSING
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{found['commit'][:8]}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def load_all(folders: list[Path]) -> list[dict[str, Any]]:
    """Every run that is kept in these folders, oldest first."""
    runs = [
        json.loads(path.read_text())
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.glob("*.json"))
    ]
    return sorted(runs, key=lambda run: str(run["time"]))
