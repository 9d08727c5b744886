"""`make bench-jobs`: runs the rounds, prints the medians, and checks the required ratios."""

import argparse
import asyncio
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from leveret import build_info
from tools.benchmark_jobs import servers
from tools.benchmark_jobs.backlog import backlog
from tools.benchmark_jobs.contenders import Contender, LeveretJobs
from tools.benchmark_jobs.idle import idle
from tools.benchmark_jobs.measure import (
    SLOW,
    Figures,
    Sizes,
    round_of,
    sync_ms,
    until_at_rest,
)
from tools.benchmark_jobs.rivals import Arq, HandWrittenSql, Procrastinate, Rq

EMBEDDED: Final = "embedded"
SHARDS: Final = "redis+postgresql"
Make = Callable[[servers.Running], Contender]
ON_REDIS: Final[dict[str, Make]] = {"arq": Arq, "RQ": Rq}
ON_POSTGRES: Final[dict[str, Make]] = {
    "procrastinate": Procrastinate,
    "SQL by hand": HandWrittenSql,
}
RIVALS: Final = (*ON_REDIS, *ON_POSTGRES)
SHARD_COUNT: Final = 2
NAMES: Final = (EMBEDDED, SHARDS, *RIVALS)
# By how much a store of ours must be ahead of the best other queue.
AHEAD: Final = {
    "enqueue 1, 1 client /s": 1.0,
    "enqueue 1, 32 clients /s": 1.0,
    "enqueue 100, 1 client /s": 4.0,
    "take and ack, 1 client /s": 1.5,
    "take and ack, 32 clients /s": 1.5,
    "worker, concurrency 1 /s": 1.5,
    "worker, concurrency 32 /s": 1.5,
}
IDLE_MS_MAX: Final = 20.0  # for a job of another node
QUICK: Final = Sizes(alone=50, worked_alone=50, many=320, batched=1_000)
SLOW_RIVALS: Final = ("arq", "RQ", "procrastinate")

Rounds = dict[str, list[Figures]]


def main(words: list[str]) -> int:
    options = _options(words)
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {"leveret": build_info.describe()}
    with _started(options.only) as field:
        asyncio.run(_run(field, options, found))
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


class Field:
    """All contenders of a run; two nodes on the same shards, if they are wanted."""

    def __init__(self) -> None:
        self.contenders: list[Contender] = []
        self.nodes: list[LeveretJobs] = []
        self.dsn = ""  # a database that no node uses


@contextmanager
def _started(wanted: list[str]) -> Iterator[Field]:
    """Start the servers that are needed, and the contenders on them."""
    field = Field()
    with ExitStack() as stack:
        if EMBEDDED in wanted:
            node = stack.enter_context(servers.leveret())
            field.contenders.append(LeveretJobs(EMBEDDED, node, []))
        redis = stack.enter_context(servers.redis())
        postgres, *databases = stack.enter_context(servers.postgres(1 + SHARD_COUNT))
        field.dsn = postgres.url
        if SHARDS in wanted:
            flags = [f"--jobs-redis={redis.url}"]
            flags += [f"--jobs-postgres={each.url}" for each in databases]
            for _ in range(2):
                node = stack.enter_context(servers.leveret(*flags))
                field.nodes.append(LeveretJobs(SHARDS, node, [redis.pid, postgres.pid]))
            field.contenders.append(field.nodes[0])
        field.contenders += [ON_REDIS[name](redis) for name in ON_REDIS if name in wanted]
        field.contenders += [ON_POSTGRES[name](postgres) for name in ON_POSTGRES if name in wanted]
        yield field


async def _run(field: Field, options: argparse.Namespace, found: dict[str, Any]) -> None:
    rounds: Rounds = {each.name: [] for each in field.contenders}
    syncs = []
    for each in field.contenders:
        await each.start()
    for number in range(options.rounds):
        for each in field.contenders:
            print(f"round {number + 1} of {options.rounds}: {each.name}", flush=True)
            await until_at_rest([pid for every in field.contenders for pid in every.pids])
            sizes = QUICK if options.quick else SLOW if each.name in SLOW_RIVALS else Sizes()
            rounds[each.name].append(await round_of(each, sizes))
        syncs.append(sync_ms(tempfile.gettempdir()))
    found["medians"] = {name: _medians(some) for name, some in rounds.items()}
    found["sync ms"] = median(syncs)
    found["idle"] = await idle(field.nodes[0], field.nodes[1], field.dsn) if field.nodes else {}
    found["backlog"] = {}
    for each in field.contenders:
        if options.backlog and isinstance(each, LeveretJobs):
            print(f"{options.backlog:,} ready: {each.name}", flush=True)
            found["backlog"][each.name] = await backlog(each, options.backlog)
    for each in field.contenders:
        await each.stop()
    found["bounds"] = list(_bounds(found))


def _medians(rounds: list[Figures]) -> Figures:
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def _bounds(found: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Return each condition that must hold, as text, and True if it does."""
    medians = found["medians"]
    for ours in (name for name in (EMBEDDED, SHARDS) if name in medians):
        for figure, factor in AHEAD.items():
            rivals = {name: medians[name][figure] for name in RIVALS if figure in _of(found, name)}
            if rivals:
                best = max(rivals, key=lambda name: rivals[name])
                ratio = medians[ours][figure] / rivals[best]
                text = f"{ours}: {figure} {ratio:.2f}× {best}, the best; at least {factor:g}×"
                yield text, ratio >= factor
    if EMBEDDED in medians:
        over_ms = medians[EMBEDDED]["enqueue p50 ms"] - found["sync ms"]
        yield f"{EMBEDDED}: enqueue is one sync + {over_ms:.2f} ms, at most 1 ms", over_ms <= 1
    if SHARDS in medians:
        p50_ms = medians[SHARDS]["enqueue p50 ms"]
        yield f"{SHARDS}: enqueue p50 {p50_ms:.2f} ms, below 1 ms", p50_ms < 1
    if found["idle"]:
        late_ms = found["idle"]["job from another node p50 ms"]
        text = f"{SHARDS}: a job of another node after {late_ms:.1f} ms, at most {IDLE_MS_MAX:g} ms"
        yield text, late_ms <= IDLE_MS_MAX
    for name, figures in found["backlog"].items():
        ratio = figures["p99 ratio"]
        yield f"{name}: dequeue p99 with the backlog {ratio:.2f}×, at most 2×", ratio <= 2


def _of(found: dict[str, Any], name: str) -> Figures:
    """Return the medians of a contender; empty if it did not run."""
    figures: Figures = found["medians"].get(name, {})
    return figures


def _show(found: dict[str, Any]) -> None:
    medians = found["medians"]
    figures = list(dict.fromkeys(figure for some in medians.values() for figure in some))
    width = max(map(len, figures)) + 2
    print(f"\n{found['leveret']}; one sync {found['sync ms']:.2f} ms; medians\n")
    print(" " * width + "".join(name.rjust(18) for name in medians))
    for figure in figures:
        cells = (_cell(some.get(figure), figure) for some in medians.values())
        print(figure.ljust(width) + "".join(cell.rjust(18) for cell in cells))
    for name, some in (("idle topic", found["idle"]), *found["backlog"].items()):
        if some:
            print(f"\n{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in some.items()))
    print()
    for text, met in found["bounds"]:
        print(f"{'met    ' if met else 'NOT MET'}  {text}")


def _cell(value: float | None, figure: str) -> str:
    return "–" if value is None else f"{value:,.{2 if 'ms' in figure else 0}f}"
