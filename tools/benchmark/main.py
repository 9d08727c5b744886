"""The command `make bench`: choose scenarios, run the rounds, show and save the result.

Each round starts both brokers anew. Each scenario runs on one broker and directly afterwards on the
other, so that both see the same load of the machine. Backlog scenarios come last, one broker at a
time. The exit code is 0 if everything was measured, even if a bound is not met: results of a busy
machine are not a test.
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
from tools.benchmark.brokers import Broker, Start, leveret, rabbitmq
from tools.benchmark.measure import LoadError, measure, warm_up
from tools.benchmark.measures import Figures
from tools.benchmark.report import markdown, show, write_page
from tools.benchmark.results import Row, save
from tools.benchmark.scenarios import BACKLOG, IDLE, SCENARIOS, SCRAPED, choose
from tools.benchmark.scraping import measure_scraped
from tools.certificates import self_signed
from tools.rabbitmq import UnavailableError

DIRECTORY: Final = machine.ROOT / "build" / "bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(argv)
    if options.markdown is not None:
        return _write_docs(Path(options.markdown))
    chosen = choose(options.rows)
    if not chosen:
        names = "\n  ".join(f"{scenario.key:<18} {scenario.name}" for scenario in SCENARIOS)
        print(f"bench: unknown scenario; use one of\n  {names}", file=sys.stderr)
        return 2
    print_conditions()
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
            print(f"skipped: {scenario.name}: {scenario.why_not}")
    if options.messages != backlog.MESSAGES and any(r.scenario.kind == BACKLOG for r in rows):
        print(f"The backlog had {options.messages:,} messages instead of a million.")
    print(f"saved {save(found, keep=options.save).relative_to(machine.ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Leveret and RabbitMQ.")
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of rounds; results are medians (3)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each load (1)")
    parser.add_argument(
        "--rows",
        default="",
        metavar="KEY,…",
        help="scenarios, by key or part of the name; all = all; default: all but backlog",
    )
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure only Leveret")
    parser.add_argument("--save", action="store_true", help="save the result in bench/results")
    parser.add_argument(
        "--messages", type=int, default=backlog.MESSAGES, help="messages of a backlog (1,000,000)"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write a saved run to the docs")
    return parser


def _write_docs(path: Path) -> int:
    found = json.loads(path.read_text())
    write_page(found)
    print(markdown(found))
    return 0


def print_conditions() -> None:
    """Print the version under test, and warn about conditions that distort the results."""
    print(f"Measuring {build_info.describe()}", file=sys.stderr)
    if not build_info.is_compiled():
        text = (
            "This is the interpreted form, which is several times slower. make setup compiles it."
        )
        print(text, file=sys.stderr)
    if machine.is_busy():
        load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"The machine is busy ({load}): the results are less reliable.", file=sys.stderr)


def _run_rounds(rows: list[Row], options: argparse.Namespace) -> None:
    compares = not options.no_rabbitmq
    shared = [row for row in rows if row.scenario.kind not in (BACKLOG, SCRAPED)]
    scraped = [row for row in rows if row.scenario.kind == SCRAPED]
    alone = [row for row in rows if row.scenario.kind == BACKLOG]
    for number in range(1, options.rounds + 1):
        print_progress(f"round {number} of {options.rounds}")
        if shared:
            compares = _run_round(shared, options.seconds, compares)
        for row in scraped:
            _run_scraped(row, options.seconds)
        if alone:
            _run_backlog(alone, options.messages, compares)


def _run_round(rows: list[Row], seconds: float, compares: bool) -> bool:
    """Run one round of the scenarios that share brokers. Return True if RabbitMQ took part."""
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
            print_progress(f"  {row.scenario.name}")
            for broker in brokers:
                rounds = row.ours if broker is ours else row.theirs
                rounds.append(measure(row.scenario, broker, seconds, DIRECTORY))
    return theirs is not None


def _has_load(row: Row) -> bool:
    return row.scenario.kind != IDLE


def _run_scraped(row: Row, seconds: float) -> None:
    """Measure Leveret only: with and without the scraping client."""
    print_progress(f"  {row.scenario.name}")
    assert row.scenario.load is not None
    with leveret(DIRECTORY / "scraped") as broker:
        row.ours.append(measure_scraped(row.scenario.load, broker, seconds, DIRECTORY))


def _run_backlog(rows: list[Row], messages: int, compares: bool) -> None:
    """Measure one broker after the other: fill, kill, restart, drain."""
    starts: list[Start] = [leveret, rabbitmq] if compares else [leveret]
    for start in starts:
        print_progress(f"  backlog of {messages:,} on {start.__name__}")
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


def print_progress(text: str) -> None:
    """Print progress, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
