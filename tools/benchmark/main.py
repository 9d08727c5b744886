"""The command: chooses scenarios, runs the rounds, shows and saves the result.

In each round both brokers are started anew; then each scenario runs on one and right after on the
other, so that both see the same mood of the machine. The exit code says that it could be measured,
not that every bound is met: figures of a busy machine are no test.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from leveret import build_info
from tools.benchmark.brokers import Broker, Unavailable, leveret, rabbitmq
from tools.benchmark.measure import LoadFailed, measure, warm_up
from tools.benchmark.report import ROOT, Row, machine_facts, save, show
from tools.benchmark.scenarios import SCENARIOS, Scenario

DIRECTORY: Final = ROOT / "build" / "bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    options = _parser().parse_args(argv)
    chosen = _choose(options.only)
    if not chosen:
        names = "\n  ".join(scenario.name for scenario in SCENARIOS)
        print(f"bench: no such scenario; there are\n  {names}", file=sys.stderr)
        return 2
    _say_conditions()
    facts = {**machine_facts(), "rounds": options.rounds, "seconds": options.seconds}
    rows = [Row(scenario, [], []) for scenario in chosen]
    compares = not options.no_rabbitmq
    try:
        for number in range(1, options.rounds + 1):
            _say(f"round {number} of {options.rounds}")
            compares = _run_round(rows, options.seconds, compares)
    except (Unavailable, LoadFailed) as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(rows)
    for scenario in SCENARIOS:
        if not scenario.is_possible:
            print(f"left out until leveret.{scenario.needs} exists: {scenario.name}")
    print(f"saved {save(rows, facts, DIRECTORY).relative_to(ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=…", description="Measure Leveret beside RabbitMQ."
    )
    parser.add_argument("--rounds", type=int, default=3, help="medians are of so many (3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each load (1)")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="scenarios with this in their name"
    )
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure Leveret alone")
    return parser


def _choose(names: list[str] | None) -> list[Scenario]:
    possible = [scenario for scenario in SCENARIOS if scenario.is_possible]
    if names is None:
        return possible
    return [s for s in possible if any(name.lower() in s.name.lower() for name in names)]


def _say_conditions() -> None:
    print(f"Measuring {build_info.describe()}", file=sys.stderr)
    if not build_info.is_compiled():
        text = "This is the interpreted form, several times slower; make setup compiles it."
        print(text, file=sys.stderr)
    cores = os.cpu_count() or 1
    if os.getloadavg()[0] > cores / 2:
        load = f"load average {os.getloadavg()[0]:.1f} on {cores} cores"
        print(f"The machine is busy ({load}): figures are worth less.", file=sys.stderr)


def _run_round(rows: list[Row], seconds: float, compares: bool) -> bool:
    """One round of every scenario; whether RabbitMQ took part."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(leveret(DIRECTORY / "leveret"))
        theirs: Broker | None = None
        if compares:
            try:
                theirs = stack.enter_context(rabbitmq(DIRECTORY / "rabbitmq"))
            except Unavailable as reason:
                print(f"Without RabbitMQ: {reason}", file=sys.stderr)
        brokers = [broker for broker in (ours, theirs) if broker is not None]
        idle_first = sorted(rows, key=_has_load)
        is_warm = False
        for row in idle_first:
            if row.scenario.load is not None and not is_warm:
                for broker in brokers:
                    warm_up(broker, DIRECTORY)
                is_warm = True
            _say(f"  {row.scenario.name}")
            for broker in brokers:
                rounds = row.ours if broker is ours else row.theirs
                rounds.append(measure(row.scenario, broker, seconds, DIRECTORY))
    return theirs is not None


def _has_load(row: Row) -> bool:
    return row.scenario.load is not None


def _say(text: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
