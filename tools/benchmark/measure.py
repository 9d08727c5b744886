"""One scenario on one broker, and the median of several rounds.

The load generator is a process of its own. The broker's CPU is taken over the whole life of the
generator, connections and clean-up included, and divided by the messages received in its time.
"""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.protocol import Parser
from tools.benchmark.bounds import Figures
from tools.benchmark.brokers import Broker
from tools.benchmark.scenarios import HALF, IDLE, Scenario
from tools.benchmark.syncs import SyncProbe
from tools.ports import HOST

WARM_UP_S: Final = 0.3
BURSTS_A_SECOND: Final = 1000  # of a load at half of its rate
_GENERATOR_S: Final = 60.0  # more than any run takes besides its own time
_COUNTED_S: Final = 900.0  # more than a run of so many messages takes
_SHARED_QUEUE: Final = "leveret.bench"

Found = dict[str, Any]


class LoadError(Exception):
    """The load generator could not do its work."""


def warm_up(broker: Broker, directory: Path) -> None:
    """A little of everything, so that the first scenario is not the first thing a broker does."""
    generate(Load(confirm_window=200, prefetch=200, seconds=WARM_UP_S), broker, directory)
    broker.settle()


def measure(scenario: Scenario, broker: Broker, seconds: float, directory: Path) -> Figures:
    """What one broker does in one scenario; idle figures must be taken before any load."""
    if scenario.kind == IDLE:
        return {"start_s": broker.start_s, "memory_mb": broker.memory_mb()}
    assert scenario.load is not None
    load = replace(scenario.load, seconds=seconds)
    if scenario.kind == HALF:
        load = _at_half(load, broker, directory)
    before_s = broker.cpu_s()
    with SyncProbe(directory, active=load.durable) as syncs:
        if scenario.beside is None:
            found = generate(load, broker, directory)
            fair = _evenness(found)
        else:
            beside = replace(scenario.beside, seconds=seconds)
            found, fair = _together(load, beside, broker, directory)
    figures = figures_of(found, broker.cpu_s() - before_s)
    figures.update(fair=fair, memory_mb=broker.memory_mb(), sync_us=syncs.p50_us())
    broker.settle()
    return figures


def figures_of(found: Found, cpu_s: float) -> Figures:
    """The figures of one run of the generator."""
    return {
        "rate": found["receive_rate"],
        "share": found["received"] / max(1, found["sent"]),
        "cpu_us": cpu_s * 1e6 / max(1, found["received"]),
        "p50_us": found["latency_us"]["p50"],
        "p95_us": found["latency_us"]["p95"],
        "p99_us": found["latency_us"]["p99"],
    }


def _at_half(load: Load, broker: Broker, directory: Path) -> Load:
    """The same load at half of the rate that it reaches."""
    rate = generate(load, broker, directory)["receive_rate"] // 2
    broker.settle()
    return replace(load, rate=max(1, rate), burst=max(1, min(load.burst, rate // BURSTS_A_SECOND)))


def _evenness(found: Found) -> float:
    """What the worst off of several producers got, of the mean."""
    each = found["sent_each"]
    return min(each) * len(each) / max(1, sum(each)) if each else 1.0


def _together(load: Load, beside: Load, broker: Broker, directory: Path) -> tuple[Found, float]:
    """Two loads on one queue; the second one's part of what it asked for."""
    shared = {"queue": _SHARED_QUEUE, "predeclared": True}
    control = Client(replace(load, host=HOST, port=broker.port), Parser())
    control.declare(_SHARED_QUEUE, load)
    try:
        first = start_generator(replace(load, **shared), broker, directory)  # type: ignore[arg-type]
        second = start_generator(replace(beside, **shared), broker, directory)  # type: ignore[arg-type]
        found, other = (take_result(each, broker, load) for each in (first, second))
    finally:
        control.delete(_SHARED_QUEUE)
        control.close()
    asked = (beside.rate or beside.consumer_rate) * other["seconds"]
    got = other["sent"] or other["received"]
    for name in ("sent", "received"):
        found[name] += other[name]
    found["receive_rate"] += other["receive_rate"]
    return found, got / asked


def generate(load: Load, broker: Broker, directory: Path) -> Found:
    """Run the load generator and take its result."""
    return take_result(start_generator(load, broker, directory), broker, load)


def start_generator(load: Load, broker: Broker, directory: Path) -> "subprocess.Popen[str]":
    """The load generator as a process."""
    port = broker.tls_port if load.tls else broker.port
    aimed = asdict(replace(load, host=HOST, port=port))
    command = [sys.executable, "-m", "leveret.perf", "--load", json.dumps(aimed)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory
    )


def take_result(process: "subprocess.Popen[str]", broker: Broker, load: Load) -> Found:
    """Wait for a generator and take its result."""
    within_s = _COUNTED_S if load.messages else load.seconds + _GENERATOR_S
    try:
        out, errors = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LoadError(f"{broker.name}: the load did not end within {within_s:.0f} s") from None
    if process.returncode != 0:
        raise LoadError(f"{broker.name}: {errors.strip()}")
    found: Found = json.loads(out)
    return found


def medians(rounds: list[Figures]) -> Figures:
    """The median of each figure."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}
