"""Plays every case against Leveret and against RabbitMQ and compares: `make compat`.

A case is right when each broker gives the observation it must give. What is left over, and what
docs/differences.md and the cases do not agree about, is a fault and makes the exit code 1. All
differences, wanted or not, are written to build/compat.md.

With `--nodes 3` Leveret is a cluster, and each connection of a case goes to another node than the
one before: `make compat-cluster`. Every case must observe what it observes on one node.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.compat import brokers, differences
from tests.compat.brokers import HOST, ROOT, Address, UnavailableError
from tests.compat.case import Case, play
from tests.compat.cases import ALL, LEFT_OUT
from tests.compat.dealt import play_dealt
from tests.dealt_cluster import dealt_cluster

BROKERS: Final[dict[str, Callable[[], contextlib.AbstractContextManager[Address]]]] = {
    "leveret": brokers.leveret,
    "rabbitmq": brokers.rabbitmq,
}
Observation = tuple[str, ...]
Player = Callable[[Case], Observation]


@dataclass
class Outcome:
    """What became of one case."""

    case: Case
    observed: dict[str, Observation] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """The brokers that did not give the observation they must give."""
        return [
            broker
            for broker, observed in self.observed.items()
            if observed != self.case.wanted(broker)
        ]

    def verdict(self) -> str:
        """One word for the table."""
        if self.wrong():
            return "WRONG"
        return "same" if self.case.difference is None else "differs"


def main(arguments: list[str] | None = None) -> int:
    """Runs the comparison; the exit code."""
    options = _options(arguments)
    cases = [case for case in ALL if options.only in case.id]
    outcomes = {case.id: Outcome(case) for case in cases}
    for broker in options.brokers.split(","):
        try:
            with _started(broker, options) as player:
                _play_all(broker, player, outcomes, options.jobs)
        except UnavailableError as error:
            print(f"\n{error}", file=sys.stderr)
            return 2
    page_faults = differences.faults(ALL, differences.read_page())
    _print_table(list(outcomes.values()))
    _write_report(options.report, list(outcomes.values()), page_faults)
    return _conclude(list(outcomes.values()), page_faults, options.report)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--leveret-port", type=int, help="use the Leveret that listens there")
    parser.add_argument("--rabbitmq-port", type=int, help="use the RabbitMQ that listens there")
    parser.add_argument("--brokers", default="leveret,rabbitmq", help="which to play against")
    parser.add_argument("--nodes", type=int, default=1, help="of Leveret; more are a cluster")
    parser.add_argument("--only", default="", help="only cases whose id contains this")
    parser.add_argument("--jobs", type=int, default=8, help="cases played at a time")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "compat.md")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _started(broker: str, options: argparse.Namespace) -> Iterator[Player]:
    port: int | None = getattr(options, f"{broker}_port")
    if port is not None:
        yield partial(play, host=HOST, port=port)
        return
    print(f"starting {broker} …", flush=True)
    if broker == "leveret" and options.nodes > 1:
        with dealt_cluster(options.nodes) as dealt:
            yield partial(play_dealt, dealt=dealt)
        return
    with BROKERS[broker]() as address:
        yield partial(play, host=address.host, port=address.port)


def _play_all(broker: str, player: Player, outcomes: dict[str, Outcome], jobs: int) -> None:
    started_s = time.monotonic()
    progress = _Progress(broker, len(outcomes))
    # The cases that wait longest start first.
    cases = sorted((each.case for each in outcomes.values()), key=lambda case: -case.wait_s)
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(player, case): case for case in cases}
        for future in as_completed(futures):
            outcomes[futures[future].id].observed[broker] = future.result()
            progress.step()
    progress.end(time.monotonic() - started_s)


class _Progress:
    """One line that counts up on a terminal, one line at the end elsewhere."""

    def __init__(self, broker: str, total: int) -> None:
        self.broker = broker
        self.total = total
        self.done = 0

    def step(self) -> None:
        self.done += 1
        if sys.stdout.isatty():
            bar = "#" * (30 * self.done // self.total)
            print(f"\r{self.broker:9} [{bar:30}] {self.done}/{self.total}", end="", flush=True)

    def end(self, seconds: float) -> None:
        start = "\r" if sys.stdout.isatty() else ""
        print(f"{start}{self.broker:9} {self.done} cases in {seconds:.1f} s{' ' * 30}", flush=True)


def _print_table(outcomes: list[Outcome]) -> None:
    print(f"\n{'topic':20} {'cases':>6} {'same':>6} {'differs':>8} {'WRONG':>6}")
    topics: dict[str, list[str]] = {}
    for outcome in outcomes:
        topics.setdefault(outcome.case.id.partition("/")[0], []).append(outcome.verdict())
    topics["all"] = [verdict for verdicts in topics.values() for verdict in verdicts]
    for topic, verdicts in topics.items():
        counts = [verdicts.count(word) for word in ("same", "differs", "WRONG")]
        print(f"{topic:20} {len(verdicts):6} {counts[0]:6} {counts[1]:8} {counts[2]:6}")
    for situation, reason in LEFT_OUT.items():
        print(f"left out: {situation}; {reason}")


def _conclude(outcomes: list[Outcome], page_faults: list[str], report: Path) -> int:
    wrong = [outcome for outcome in outcomes if outcome.wrong()]
    for outcome in wrong:
        print(f"\n{outcome.case.id}: {outcome.case.title}")
        for broker in outcome.wrong():
            _print_lines(f"  {broker} must give", outcome.case.wanted(broker))
            _print_lines(f"  {broker} gave", outcome.observed[broker])
    for fault in page_faults:
        print(f"\ndocs/differences.md: {fault}")
    print(f"\n{len(wrong)} wrong, {len(page_faults)} faults of the page; report in {report}")
    return 1 if wrong or page_faults else 0


def _print_lines(label: str, lines: Observation) -> None:
    for number, line in enumerate(lines):
        print(f"{label if number == 0 else '':25} {line}")


def _write_report(report: Path, outcomes: list[Outcome], page_faults: list[str]) -> None:
    differing = [outcome for outcome in outcomes if outcome.verdict() == "differs"]
    wrong = [outcome for outcome in outcomes if outcome.wrong()]
    lines = [
        "# Leveret beside RabbitMQ",
        "",
        f"{len(outcomes)} situations: {len(outcomes) - len(differing) - len(wrong)} the same, "
        f"{len(differing)} different as docs/differences.md says, {len(wrong)} wrong.",
        "",
    ]
    lines += [f"- docs/differences.md: {fault}" for fault in page_faults]
    for title, group in (("Wrong", wrong), ("Different and wanted", differing)):
        if group:
            lines += ["", f"## {title}", "", *_rows(group)]
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("\n".join(lines) + "\n")


def _rows(outcomes: list[Outcome]) -> list[str]:
    rows = ["| case | situation | difference | Leveret | RabbitMQ |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        case = outcome.case
        cells = [case.id, case.title, case.difference or "none"]
        for broker in BROKERS:
            wanted, observed = case.wanted(broker), outcome.observed.get(broker)
            text = _cell(wanted if observed is None else observed)
            right = observed is None or observed == wanted
            cells.append(text if right else f"**{text}** instead of {_cell(wanted)}")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _cell(observation: Observation) -> str:
    return "<br>".join(observation).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
