"""Runs the clients' own test suites against a broker and compares with RabbitMQ (`make clients`).

    python -m tests.clients.run_suites                        all suites on a Leveret of its own
    python -m tests.clients.run_suites kombu amqplib          only these
    python -m tests.clients.run_suites --nodes 3              on a cluster; see tests.dealt_cluster
    python -m tests.clients.run_suites --amqp HOST:PORT       on a broker that runs already
    python -m tests.clients.run_suites --source pika=FOLDER   a suite that no archive carries
    python -m tests.clients.run_suites --amqp … --write-baseline   RabbitMQ 3.10.8 only

A test that passes on RabbitMQ and fails here is run once more, with its neighbours where the
runner knows no finer step; what passes then is listed as unsteady. Exits 1 when a test that
passes on RabbitMQ does not pass here, 0 otherwise; a suite that cannot be had is said, not failed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.process import Child
from tests.clients.relay import Relay
from tests.clients.suites import baseline
from tests.clients.suites.baseline import Baseline, tests_with
from tests.clients.suites.catalogue import Address, Suite, all_suites
from tests.clients.suites.outcomes import Outcomes
from tests.clients.suites.workshop import UnavailableError, Workshop
from tests.dealt_cluster import dealt_cluster

STANDARD_PORT: Final = 5672
SHOWN_MAX: Final = 40


@dataclass
class Report:
    """What one suite did on the broker under test."""

    suite: Suite
    baseline: Baseline
    found: Outcomes = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    unavailable: str = ""

    def lost(self) -> list[str]:
        return [] if self.unavailable else self.baseline.lost(self.found)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # A plain SIGTERM would leave the broker and the suite's processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    workshop = Workshop(dict(options.source))
    suites = [suite for suite in all_suites() if not options.suites or suite.name in options.suites]
    with broker_under_test(options.amqp, options.nodes) as address:
        reports = [examine(suite, workshop, address, options.write_baseline) for suite in suites]
    for report in reports:
        explain(report)
    print_table(reports)
    return 1 if any(report.lost() for report in reports) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the clients' own test suites.")
    known = [suite.name for suite in all_suites()]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(known))
    parser.add_argument("--amqp", type=to_address, help="host:port of a broker that runs already")
    parser.add_argument("--nodes", type=int, default=1, help="more than one are a cluster")
    parser.add_argument("--source", type=to_source, action="append", default=[])
    parser.add_argument("--write-baseline", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := set(options.suites) - set(known):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    return options


def to_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def to_source(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    return name, Path(folder).resolve()


@contextlib.contextmanager
def broker_under_test(given: Address | None, nodes: int) -> Iterator[Address]:
    if given is not None:
        yield given
        return
    if nodes > 1:
        with dealt_cluster(nodes) as dealt:
            yield dealt.amqp
        return
    with tempfile.TemporaryDirectory() as data:
        serve = [sys.executable, "-m", "leveret", "serve", "--host", "127.0.0.1", "--data", data]
        child = Child([*serve, "--amqp-port", "0", "--http-port", "0"])
        try:
            ready = child.wait_for(r"^leveret ready amqp=(\S+):(\d+) http=\S+:\d+$")
            yield ready[1], int(ready[2])
        finally:
            child.stop()


def examine(suite: Suite, workshop: Workshop, address: Address, writes: bool) -> Report:
    known = baseline.load(suite.name) or Baseline(suite.name, suite.version)
    report = Report(suite, known)
    print(f"{suite.name} {suite.version}", flush=True)
    try:
        source = suite.obtain(workshop)
        (workshop.build / f"{suite.name}.log").write_text("")
        with reachable(suite, address) as reached:
            report.found = suite.run(workshop, source, reached, ())
            if writes:
                known.version, known.outcomes = suite.version, report.found
                baseline.save(known)
            else:
                run_again(report, workshop, source, reached)
    except UnavailableError as error:
        report.unavailable = str(error)
    return report


@contextlib.contextmanager
def reachable(suite: Suite, address: Address) -> Iterator[Address]:
    """The address to tell the suite: a relay where it insists on the standard port."""
    if not suite.on_5672 or address[1] == STANDARD_PORT:
        yield address
        return
    with contextlib.ExitStack() as relays:
        try:
            relay = relays.enter_context(Relay([address], STANDARD_PORT))
        except OSError as error:
            raise UnavailableError(f"it insists on port {STANDARD_PORT}, which is taken") from error
        with contextlib.suppress(OSError):  # a machine without IPv6
            relays.enter_context(Relay([address], STANDARD_PORT, "::1"))
        yield relay.address


def run_again(report: Report, workshop: Workshop, source: Path, address: Address) -> None:
    lost = report.lost()
    if not lost:
        return
    print(f"  {len(lost)} tests once more", flush=True)
    second = report.suite.run(workshop, source, address, lost)
    report.unsteady = sorted(set(lost) & tests_with(second, "passed"))
    report.found.update(dict.fromkeys(report.unsteady, "passed"))


def explain(report: Report) -> None:
    """The tests that differ, one per line, and what was left out."""
    print(f"\n{report.suite.name} {report.suite.version}")
    if report.unavailable:
        print(f"  not run: {report.unavailable}")
        return
    if report.baseline.version != report.suite.version:
        print(f"  the baseline is of version {report.baseline.version}")
    for what, reason in report.suite.left_out.items():
        print(f"  left out: {what} (needs {reason})")
    show("fails here, passes on RabbitMQ", report.lost())
    show("passed at the second try", report.unsteady)
    show("passes here, fails on RabbitMQ", report.baseline.gained(report.found))


def show(title: str, tests: Sequence[str]) -> None:
    if tests:
        print(f"  {title}: {len(tests)}")
        for test in tests[:SHOWN_MAX]:
            print(f"    {test}")


def print_table(reports: Sequence[Report]) -> None:
    print(f"\n{'suite':<20}{'RabbitMQ 3.10.8':>18}{'here':>8}{'lost':>8}  unsteady")
    for report in reports:
        name = f"{report.suite.name} {report.suite.version}"
        passed = len(report.baseline.passed())
        if report.unavailable:
            print(f"{name:<20}{passed:>18}{'-':>8}{'-':>8}  not run")
            continue
        here = len(tests_with(report.found, "passed"))
        print(f"{name:<20}{passed:>18}{here:>8}{len(report.lost()):>8}  {len(report.unsteady)}")


if __name__ == "__main__":
    sys.exit(main())
