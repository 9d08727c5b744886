"""The command: chooses scenarios, runs the rounds, shows and saves the result.

In each round both brokers are started anew; then each scenario runs on one and right after on the
other, so that both see the same mood of the machine. Scenarios about a backlog come last, each
broker by itself. The exit code says that it could be measured, not that every bound is met: figures
of a busy machine are no test.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from leveret import build_info
from tools.benchmark import backlog, machine
from tools.benchmark.bounds import Figures
from tools.benchmark.brokers import Broker, Start, leveret, rabbitmq
from tools.benchmark.measure import LoadError, measure, warm_up
from tools.benchmark.report import markdown, show, write_page
from tools.benchmark.results import Row, save
from tools.benchmark.scenarios import BACKLOG, IDLE, SCENARIOS, WATCHED, choose
from tools.benchmark.watched import measure_watched
from tools.certificates import self_signed
from tools.rabbitmq import UnavailableError

DIRECTORY: Final = machine.ROOT / "build" / "bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    options = _parser().parse_args(argv)
    if options.markdown is not None:
        return _write_docs(Path(options.markdown))
    chosen = choose(options.rows)
    if not chosen:
        names = "\n  ".join(f"{scenario.key:<18} {scenario.name}" for scenario in SCENARIOS)
        print(f"bench: no such scenario; there are\n  {names}", file=sys.stderr)
        return 2
    say_conditions()
    found = {
        **machine.facts(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "backlog": options.messages,
    }
    rows = [Row(scenario, [], []) for scenario in chosen if not scenario.why_not]
    try:
        _run_rounds(rows, options)
    except (UnavailableError, LoadError) as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    machine.finish(found)
    found["scenarios"] = [row.to_json() for row in rows]
    show(rows)
    for scenario in chosen:
        if scenario.why_not:
            print(f"left out: {scenario.name}: {scenario.why_not}")
    if options.messages != backlog.MESSAGES and any(r.scenario.kind == BACKLOG for r in rows):
        print(f"The backlog was of {options.messages:,} messages, not of a million.")
    print(f"saved {save(found, keep=options.save).relative_to(machine.ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure Leveret beside RabbitMQ."
    )
    parser.add_argument("--rounds", type=int, default=3, help="medians are of so many (3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each load (1)")
    parser.add_argument(
        "--rows",
        default="",
        metavar="KEY,…",
        help="scenarios by key or part of the name; all = all; none = all but backlog",
    )
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure Leveret alone")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/results")
    parser.add_argument(
        "--messages", type=int, default=backlog.MESSAGES, help="of a backlog (1,000,000)"
    )
    parser.add_argument("--markdown", metavar="FILE", help="put a saved run into the docs")
    return parser


def _write_docs(path: Path) -> int:
    found = json.loads(path.read_text())
    write_page(found)
    print(markdown(found))
    return 0


def say_conditions() -> None:
    """What is measured, and what is not as it should be."""
    print(f"Measuring {build_info.describe()}", file=sys.stderr)
    if not build_info.is_compiled():
        text = "This is the interpreted form, several times slower; make setup compiles it."
        print(text, file=sys.stderr)
    if machine.is_busy():
        load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"The machine is busy ({load}): figures are worth less.", file=sys.stderr)


def _run_rounds(rows: list[Row], options: argparse.Namespace) -> None:
    compares = not options.no_rabbitmq
    shared = [row for row in rows if row.scenario.kind not in (BACKLOG, WATCHED)]
    watched = [row for row in rows if row.scenario.kind == WATCHED]
    alone = [row for row in rows if row.scenario.kind == BACKLOG]
    for number in range(1, options.rounds + 1):
        say(f"round {number} of {options.rounds}")
        if shared:
            compares = _run_round(shared, options.seconds, compares)
        for row in watched:
            _run_watched(row, options.seconds)
        if alone:
            _run_backlog(alone, options.messages, compares)


def _run_round(rows: list[Row], seconds: float, compares: bool) -> bool:
    """One round of the scenarios that share their brokers; whether RabbitMQ took part."""
    with contextlib.ExitStack() as stack:
        tls = None
        if any(row.scenario.is_secured for row in rows):
            tls = self_signed(DIRECTORY / "tls")
        ours = stack.enter_context(leveret(DIRECTORY / "leveret", tls))
        theirs: Broker | None = None
        if compares:
            try:
                theirs = stack.enter_context(rabbitmq(DIRECTORY / "rabbitmq", tls))
            except UnavailableError as reason:
                print(f"Without RabbitMQ: {reason}", file=sys.stderr)
        brokers = [broker for broker in (ours, theirs) if broker is not None]
        idle_first = sorted(rows, key=_has_load)
        is_warm = False
        for row in idle_first:
            if _has_load(row) and not is_warm:
                for broker in brokers:
                    warm_up(broker, DIRECTORY)
                is_warm = True
            say(f"  {row.scenario.name}")
            for broker in brokers:
                rounds = row.ours if broker is ours else row.theirs
                rounds.append(measure(row.scenario, broker, seconds, DIRECTORY))
    return theirs is not None


def _has_load(row: Row) -> bool:
    return row.scenario.kind != IDLE


def _run_watched(row: Row, seconds: float) -> None:
    """Leveret alone: it is compared with itself."""
    say(f"  {row.scenario.name}")
    assert row.scenario.load is not None
    with leveret(DIRECTORY / "watched") as broker:
        row.ours.append(measure_watched(row.scenario.load, broker, seconds, DIRECTORY))


def _run_backlog(rows: list[Row], messages: int, compares: bool) -> None:
    """Each broker by itself: fill, kill, start again, drain."""
    starts: list[Start] = [leveret, rabbitmq] if compares else [leveret]
    for start in starts:
        say(f"  backlog of {messages:,} on {start.__name__}")
        try:
            with start(DIRECTORY / f"backlog-{start.__name__}") as broker:
                found = backlog.measure_backlog(broker, messages, DIRECTORY)
        except UnavailableError as reason:
            if start is leveret:
                raise
            print(f"Without RabbitMQ: {reason}", file=sys.stderr)
            return
        for row in rows:
            figures: Figures = found[row.scenario.figure]
            (row.ours if start is leveret else row.theirs).append(figures)


def say(text: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
