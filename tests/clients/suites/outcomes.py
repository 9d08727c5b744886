"""What a test runner reports, as one outcome per test id.

    pytest   JSON lines of the plugin `record_outcomes`
    node     TAP of node's own runner; a test inside a suite is `file::suite::test`
    rspec    its JSON formatter
    go       the events of `go test -json`

Every reader gives a dict from test id to outcome and keeps the worst outcome of a test that is
reported more than once.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal

Outcome = Literal["passed", "skipped", "failed"]
Outcomes = dict[str, Outcome]

_BY_RANK: Final[tuple[Outcome, ...]] = ("passed", "skipped", "failed")
_RSPEC: Final[dict[str, Outcome]] = {"passed": "passed", "pending": "skipped"}
_GO: Final[dict[str, Outcome]] = {"pass": "passed", "skip": "skipped", "fail": "failed"}
_RSPEC_TAKE: Final = re.compile(r"\btake \d+")
_TAP_LINE: Final = re.compile(r"^(?P<indent> *)(?P<not>not )?ok \d+ - (?P<name>.*)$")
_TAP_SUBTEST: Final = re.compile(r"^(?P<indent> *)# Subtest: (?P<name>.*)$")
_TAP_DIRECTIVE: Final = re.compile(r" # (?P<kind>SKIP|TODO)\b.*$", re.IGNORECASE)
_TAP_INDENT: Final = 4


def add(outcomes: Outcomes, test: str, outcome: Outcome) -> None:
    known = outcomes.get(test, outcome)
    outcomes[test] = max(known, outcome, key=_BY_RANK.index)


def read_pytest(lines: str) -> Outcomes:
    outcomes: Outcomes = {}
    for line in lines.splitlines():
        test, outcome = json.loads(line)
        add(outcomes, test, outcome if outcome in _BY_RANK else "failed")
    return outcomes


def read_rspec(report: str) -> Outcomes:
    """Examples that only repeat another one ("take 7") count as one test."""
    outcomes: Outcomes = {}
    for example in json.loads(report)["examples"] if report else []:
        description = _RSPEC_TAKE.sub("take N", example["full_description"])
        outcome = _RSPEC.get(example["status"], "failed")
        add(outcomes, f"{example['file_path']}::{description}", outcome)
    return outcomes


def read_go(events: str, package: str) -> Outcomes:
    outcomes: Outcomes = {}
    for line in events.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if "Test" in event and event["Action"] in _GO:
            add(outcomes, f"{package}::{event['Test']}", _GO[event["Action"]])
    return outcomes


def read_tap(report: str, file: str) -> Outcomes:
    """Leaves only: the result line of a suite sums up its children and is not a test."""
    outcomes: Outcomes = {}
    path: list[str] = []
    parents: set[str] = set()
    for line in report.splitlines():
        if match := _TAP_SUBTEST.match(line):
            depth = len(match["indent"]) // _TAP_INDENT
            path[depth:] = [match["name"]]
            parents.update("::".join([file, *path[:end]]) for end in range(1, depth + 1))
        elif match := _TAP_LINE.match(line):
            depth = len(match["indent"]) // _TAP_INDENT
            name, directive = _split_directive(match["name"])
            test = "::".join([file, *path[:depth], name])
            if test not in parents:
                add(outcomes, test, _tap_outcome(match["not"] is not None, directive))
    return outcomes


def _split_directive(name: str) -> tuple[str, bool]:
    match = _TAP_DIRECTIVE.search(name)
    return (name[: match.start()], True) if match else (name, False)


def _tap_outcome(is_failed: bool, has_directive: bool) -> Outcome:
    if has_directive:
        return "skipped"
    return "failed" if is_failed else "passed"
