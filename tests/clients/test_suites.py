"""How the outcomes of outside suites are read and compared; no suite is run here."""

from __future__ import annotations

import json

from tests.clients.suites import baseline
from tests.clients.suites.baseline import Baseline
from tests.clients.suites.catalogue import all_suites
from tests.clients.suites.outcomes import read_pytest, read_rspec, read_tap

TAP = """\
TAP version 13
# Subtest: Channel
    # Subtest: closes
    ok 1 - closes
      ---
      duration_ms: 1.5
      ...
    # Subtest: nested
        # Subtest: deep
        not ok 1 - deep
        1..1
    not ok 2 - nested
    # Subtest: later
    ok 3 - later # SKIP not now
    1..3
not ok 1 - Channel
# Subtest: alone
ok 2 - alone
1..2
"""


def test_tap_keeps_leaves_with_their_path() -> None:
    assert read_tap(TAP, "a.test.js") == {
        "a.test.js::Channel::closes": "passed",
        "a.test.js::Channel::nested::deep": "failed",
        "a.test.js::Channel::later": "skipped",
        "a.test.js::alone": "passed",
    }


def test_pytest_keeps_the_worst_outcome() -> None:
    reports = [["t.py::a", "passed"], ["t.py::a", "failed"], ["t.py::b", "skipped"]]
    lines = "\n".join(json.dumps(report) for report in reports)
    assert read_pytest(lines) == {"t.py::a": "failed", "t.py::b": "skipped"}


def test_rspec_counts_repetitions_once() -> None:
    examples = [
        {"file_path": "./a_spec.rb", "full_description": f"opens (take {n})", "status": status}
        for n, status in enumerate(["passed", "failed", "passed"])
    ]
    report = json.dumps({"version": "3", "examples": examples})
    assert read_rspec(report) == {"./a_spec.rb::opens (take N)": "failed"}
    assert read_rspec("") == {}


def test_lost_and_gained_tests() -> None:
    known = Baseline("x", "1", {"a": "passed", "b": "passed", "c": "failed", "d": "skipped"})
    known.reasons = {"c*": "needs rabbitmqctl"}
    assert known.lost({"a": "passed", "b": "failed"}) == ["b"]
    assert known.lost({"a": "passed"}) == ["b"]  # not reached is not passed
    assert known.gained({"a": "passed", "b": "passed", "c": "passed"}) == ["c"]
    assert known.reason("c") == "needs rabbitmqctl"


def test_every_suite_has_a_baseline_of_its_version_that_explains_its_failures() -> None:
    for suite in all_suites():
        known = baseline.load(suite.name)
        assert known is not None, suite.name
        assert known.version == suite.version, suite.name
        failed = baseline.tests_with(known.outcomes, "failed")
        assert [test for test in sorted(failed) if not known.reason(test)] == []
