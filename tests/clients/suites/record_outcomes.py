"""A pytest plugin that writes one line of JSON per report: `[node id, outcome]`.

It runs inside the suites' processes (`-p record_outcomes`) and imports nothing of the project.
Lines are written as they come, so that a suite that is stopped by its deadline still tells what it
did. A test has several lines (set-up, call, teardown); the reader keeps the worst.
"""

from __future__ import annotations

import json
import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        with open(os.environ["LEVERET_SUITE_RESULTS"], "a") as results:
            results.write(json.dumps([report.nodeid, report.outcome]) + "\n")
