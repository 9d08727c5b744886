"""One scenario on one broker, and the median of several rounds.

The load generator is a process of its own. The broker's CPU is taken over the whole life of the
generator, connections and clean-up included, and divided by the messages received in its time.
"""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any, Final

from leveret.perf.load import Load
from tools.benchmark.brokers import HOST, Broker
from tools.benchmark.scenarios import Figures, Scenario

WARM_UP_S: Final = 0.3
_GENERATOR_S: Final = 60.0  # more than any run takes
_FLAGS: Final = {
    "body_bytes": "--size",
    "confirm_window": "--confirm",
    "queue_type": "--queue-type",
    "producers": "--producers",
    "consumers": "--consumers",
    "queues": "--queues",
    "prefetch": "--prefetch",
    "rate": "--rate",
    "burst": "--burst",
}


class LoadFailed(Exception):
    """The load generator could not do its work."""


def warm_up(broker: Broker, directory: Path) -> None:
    """A little of everything, so that the first scenario is not the first thing a broker does."""
    generate(Load(confirm_window=200, prefetch=200, seconds=WARM_UP_S), broker, directory)
    broker.settle()


def measure(scenario: Scenario, broker: Broker, seconds: float, directory: Path) -> Figures:
    """What one broker does in one scenario; idle figures must be taken before any load."""
    if scenario.load is None:
        return {"start_s": broker.start_s, "memory_mb": broker.memory_mb()}
    before_s = broker.cpu_s()
    found = generate(scenario.load, broker, directory, seconds)
    received = max(1, found["received"])
    figures = {
        "rate": found["receive_rate"],
        "share": found["received"] / max(1, found["sent"]),
        "cpu_us": (broker.cpu_s() - before_s) * 1e6 / received,
        "p50_us": found["latency_us"]["p50"],
        "p99_us": found["latency_us"]["p99"],
    }
    broker.settle()
    return figures


def generate(
    load: Load, broker: Broker, directory: Path, seconds: float | None = None
) -> dict[str, Any]:
    """Run the load generator and take its result."""
    command = [sys.executable, "-m", "leveret.perf", "--host", HOST, "--port", str(broker.port)]
    command += ["--seconds", str(seconds or load.seconds), *_flags(load)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_GENERATOR_S, cwd=directory
    )
    if done.returncode != 0:
        raise LoadFailed(f"{broker.name}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _flags(load: Load) -> list[str]:
    words = ["--persistent"] if load.persistent else []
    for each in fields(load):
        flag = _FLAGS.get(each.name)
        value = getattr(load, each.name)
        if flag and value != each.default:
            words += [flag, str(value)]
    return words


def medians(rounds: list[Figures]) -> Figures:
    """The median of each figure."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}
