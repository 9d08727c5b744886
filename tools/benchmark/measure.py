"""Measure one scenario on one broker, and compute medians of several rounds.

The load generator is a separate process. The broker's CPU time is measured over the whole life of
the generator, with connections and cleanup, and divided by the number of received messages.
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
from tools.benchmark.brokers import Broker
from tools.benchmark.measures import Figures
from tools.benchmark.scenarios import HALF, IDLE, Scenario
from tools.benchmark.sync_probe import SyncProbe
from tools.ports import HOST

WARM_UP_S: Final = 0.3
BURSTS_PER_S: Final = 1000  # of a load at half of its rate
_GENERATOR_S: Final = 60.0  # time limit for a run, in addition to its duration
_COUNTED_S: Final = 900.0  # time limit for a run with a number of messages
_SHARED_QUEUE: Final = "leveret.bench"

Found = dict[str, Any]


class LoadError(Exception):
    """The load generator failed."""


def warm_up(broker: Broker, directory: Path) -> None:
    """Run a short load, so that the first scenario does not meet a cold broker."""
    generate(Load(confirm_window=200, prefetch=200, seconds=WARM_UP_S), broker, directory)
    broker.settle()


def measure(scenario: Scenario, broker: Broker, seconds: float, directory: Path) -> Figures:
    """Measure one broker in one scenario. IDLE scenarios must run before any load."""
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
            fair = _fairness(found)
        else:
            beside = replace(scenario.beside, seconds=seconds)
            found, fair = _run_together(load, beside, broker, directory)
    figures = figures_of(found, broker.cpu_s() - before_s)
    figures.update(fair=fair, memory_mb=broker.memory_mb(), sync_us=syncs.p50_us())
    broker.settle()
    return figures


def figures_of(found: Found, cpu_s: float) -> Figures:
    """Return the measured values of one run of the generator."""
    return {
        "rate": found["receive_rate"],
        "share": found["received"] / max(1, found["sent"]),
        "cpu_us": cpu_s * 1e6 / max(1, found["received"]),
        "p50_us": found["latency_us"]["p50"],
        "p95_us": found["latency_us"]["p95"],
        "p99_us": found["latency_us"]["p99"],
    }


def _at_half(load: Load, broker: Broker, directory: Path) -> Load:
    """Return the load at half of its maximum rate."""
    rate = generate(load, broker, directory)["receive_rate"] // 2
    broker.settle()
    return replace(load, rate=max(1, rate), burst=max(1, min(load.burst, rate // BURSTS_PER_S)))


def _fairness(found: Found) -> float:
    """Return the share of the slowest producer, relative to the mean."""
    each = found["sent_each"]
    return min(each) * len(each) / max(1, sum(each)) if each else 1.0


def _run_together(load: Load, beside: Load, broker: Broker, directory: Path) -> tuple[Found, float]:
    """Run two loads on one queue. Return the result, and the second's share of its rate."""
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
    """Run the load generator and return its result."""
    return take_result(start_generator(load, broker, directory), broker, load)


def start_generator(load: Load, broker: Broker, directory: Path) -> "subprocess.Popen[str]":
    """Start the load generator as a process."""
    port = broker.tls_port if load.tls else broker.port
    fields = asdict(replace(load, host=HOST, port=port))
    command = [sys.executable, "-m", "leveret.perf", "--load", json.dumps(fields)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory
    )


def take_result(process: "subprocess.Popen[str]", broker: Broker, load: Load) -> Found:
    """Wait for a generator and return its result."""
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
    """Return the median of each value."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}
