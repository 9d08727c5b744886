"""`make bench-jobs`: runs the rounds, prints the medians, and checks the required ratios."""

import argparse
import asyncio
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from leveret import build_info
from tools.benchmark_jobs import servers
from tools.benchmark_jobs.backlog import backlog
from tools.benchmark_jobs.contenders import (
    Arq,
    Contender,
    LeveretJobs,
    LeveretWorker,
    Procrastinate,
)
from tools.benchmark_jobs.measure import SLOW, Figures, Sizes, round_of, sync_ms

EMBEDDED: Final = "leveret"
WORKER: Final = "leveret worker"
SHARDS: Final = "leveret redis+pg"
RIVALS: Final = ("procrastinate", "arq")
SHARD_COUNT: Final = 2
NAMES: Final = (EMBEDDED, WORKER, SHARDS, *RIVALS)
# By how much our slower store must be ahead of the best other queue.
AHEAD: Final = {"enqueue 1 /s": 1.0, "take 1 /s": 1.0, "enqueue 100 /s": 5.0, "take 100 /s": 5.0}
QUICK: Final = Sizes(alone=50, ones=320, many=2_000)

Rounds = dict[str, list[Figures]]


def main(words: list[str]) -> int:
    options = _options(words)
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {"leveret": build_info.describe()}
    with _started(options.only) as contenders:
        asyncio.run(_run(contenders, options, found))
    _show(found)
    if options.save:
        Path(options.save).write_text(json.dumps(found, indent=1))
    return 0 if all(met for _, met in found["bounds"]) else 1


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure jobs beside other queues.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(NAMES), help="contenders, commas between")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="ready jobs; 0: leave out")
    parser.add_argument("--quick", action="store_true", help="few jobs: does it run?")
    parser.add_argument("--save", help="write the figures to this file, as JSON")
    options = parser.parse_args(words)
    options.only = [name.strip() for name in options.only.split(",")]
    return options


@contextmanager
def _started(wanted: list[str]) -> Iterator[list[Contender]]:
    """The servers that are needed, and the contenders on them."""
    with ExitStack() as stack:
        found: list[Contender] = []
        redis = pg = None
        databases: list[servers.Running] = []
        if SHARDS in wanted or "arq" in wanted:
            redis = stack.enter_context(servers.redis())
        if SHARDS in wanted or "procrastinate" in wanted:
            pg, *databases = stack.enter_context(servers.postgres(1 + SHARD_COUNT))
        if EMBEDDED in wanted or WORKER in wanted:
            node = stack.enter_context(servers.leveret())
            found += [LeveretJobs(EMBEDDED, node, [])] if EMBEDDED in wanted else []
            found += [LeveretWorker(WORKER, node, [])] if WORKER in wanted else []
        if SHARDS in wanted and redis is not None and pg is not None:
            shards = [f"--jobs-postgres={each.url}" for each in databases]
            node = stack.enter_context(servers.leveret(f"--jobs-redis={redis.url}", *shards))
            found.append(LeveretJobs(SHARDS, node, [redis.pid, pg.pid]))
        if "procrastinate" in wanted and pg is not None:
            found.append(Procrastinate(pg))
        if "arq" in wanted and redis is not None:
            found.append(Arq(redis))
        yield found


async def _run(
    contenders: list[Contender], options: argparse.Namespace, found: dict[str, Any]
) -> None:
    rounds: Rounds = {each.name: [] for each in contenders}
    syncs = []
    for each in contenders:
        await each.start()
    for number in range(options.rounds):
        for each in contenders:
            print(f"round {number + 1} of {options.rounds}: {each.name}", flush=True)
            sizes = QUICK if options.quick else SLOW if each.name in RIVALS else Sizes()
            rounds[each.name].append(await round_of(each, sizes))
        syncs.append(sync_ms(tempfile.gettempdir()))
    found["medians"] = {name: _medians(some) for name, some in rounds.items()}
    found["sync ms"] = median(syncs)
    found["backlog"] = {}
    for each in contenders:
        if options.backlog and isinstance(each, LeveretJobs) and each.name != WORKER:
            print(f"{options.backlog:,} ready: {each.name}", flush=True)
            found["backlog"][each.name] = await backlog(each, options.backlog)
    for each in contenders:
        await each.stop()
    found["bounds"] = list(_bounds(found))


def _medians(rounds: list[Figures]) -> Figures:
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def _bounds(found: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What must hold, in words, and whether it does."""
    medians = found["medians"]
    for ours in (EMBEDDED, SHARDS):
        if ours not in medians:
            continue
        for figure, factor in AHEAD.items():
            for rival in (name for name in RIVALS if name in medians):
                ratio = medians[ours][figure] / medians[rival][figure]
                yield (
                    f"{ours}: {figure} {ratio:.1f}× {rival}, at least {factor:g}×",
                    ratio >= factor,
                )
    if EMBEDDED in medians:
        over_ms = medians[EMBEDDED]["enqueue p50 ms"] - found["sync ms"]
        yield f"{EMBEDDED}: enqueue is one sync + {over_ms:.2f} ms, at most 1 ms", over_ms <= 1
    if SHARDS in medians:
        p50_ms = medians[SHARDS]["enqueue p50 ms"]
        yield f"{SHARDS}: enqueue p50 {p50_ms:.2f} ms, below 1 ms", p50_ms < 1
    for name, figures in found["backlog"].items():
        ratio = figures["p99 ratio"]
        yield f"{name}: dequeue p99 with the backlog {ratio:.2f}×, at most 2×", ratio <= 2


def _show(found: dict[str, Any]) -> None:
    medians = found["medians"]
    names = list(medians)
    figures = list(next(iter(medians.values())))
    width = max(map(len, figures)) + 2
    print(f"\n{found['leveret']}; one sync {found['sync ms']:.2f} ms; medians\n")
    print(" " * width + "".join(name.rjust(18) for name in names))
    for figure in figures:
        cells = (f"{medians[name][figure]:,.{2 if 'ms' in figure else 0}f}" for name in names)
        print(figure.ljust(width) + "".join(cell.rjust(18) for cell in cells))
    for name, some in found["backlog"].items():
        print(f"\n{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in some.items()))
    print()
    for text, met in found["bounds"]:
        print(f"{'met    ' if met else 'NOT MET'}  {text}")
