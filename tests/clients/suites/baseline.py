"""What each suite does on RabbitMQ 3.10.8, kept in `baselines/<suite>.json`.

    {"suite": …, "version": …, "broker": …,
     "reasons": {pattern: why a test does not pass there, or not every time},
     "tests": {file: {outcome: [test, …]}}}

The comparison has one rule: a test that passes on RabbitMQ must pass on the broker under test,
unless a reason says why it is no measure. Reasons are written by hand and survive when the outcomes
are written again; a pattern is a shell pattern over whole test ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, get_args

from tests.clients.suites.outcomes import Outcome, Outcomes

FOLDER: Final = Path(__file__).parents[1] / "baselines"
BROKER: Final = "RabbitMQ 3.10.8"


@dataclass
class Baseline:
    suite: str
    version: str
    outcomes: Outcomes = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def reason(self, test: str) -> str:
        found = (text for pattern, text in self.reasons.items() if fnmatchcase(test, pattern))
        return next(found, "")

    def passed(self) -> set[str]:
        return tests_with(self.outcomes, "passed")

    def lost(self, found: Outcomes) -> list[str]:
        """The tests that pass on RabbitMQ and do not pass here, or were not even reached."""
        missing = self.passed() - tests_with(found, "passed")
        return sorted(test for test in missing if not self.reason(test))

    def gained(self, found: Outcomes) -> list[str]:
        """The tests that pass here and fail on RabbitMQ."""
        return sorted(tests_with(self.outcomes, "failed") & tests_with(found, "passed"))


def tests_with(outcomes: Outcomes, wanted: Outcome) -> set[str]:
    return {test for test, outcome in outcomes.items() if outcome == wanted}


def load(suite: str) -> Baseline | None:
    path = FOLDER / f"{suite}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    outcomes: Outcomes = {}
    for file, by_outcome in stored["tests"].items():
        for outcome, tests in by_outcome.items():
            outcomes.update({f"{file}::{test}": outcome for test in tests})
    return Baseline(suite, stored["version"], outcomes, stored["reasons"])


def save(baseline: Baseline) -> None:
    stored = {
        "suite": baseline.suite,
        "version": baseline.version,
        "broker": BROKER,
        "reasons": baseline.reasons,
        "tests": grouped(baseline.outcomes),
    }
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (FOLDER / f"{baseline.suite}.json").write_text(text + "\n")


def grouped(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, list[str]]]:
    files: dict[str, dict[str, list[str]]] = {}
    for test in sorted(outcomes):
        file, _, name = test.partition("::")
        files.setdefault(file, {}).setdefault(outcomes[test], []).append(name)
    for by_outcome in files.values():
        assert set(by_outcome) <= set(get_args(Outcome))
    return files
