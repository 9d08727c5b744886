"""A queue with a million messages: memory while they wait, restart time, and time to drain it.

A separate broker is filled with persistent messages, measured, killed, restarted with its data, and
drained. Every message was confirmed, so every message must be received.
"""

from pathlib import Path
from typing import Final

from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.protocol import Parser
from tools.benchmark.brokers import Broker
from tools.benchmark.measure import LoadError, generate
from tools.benchmark.measures import Figures
from tools.ports import HOST

MESSAGES: Final = 1_000_000
BODY_BYTES: Final = 1024
QUEUE: Final = "leveret.bench.backlog"


def measure_backlog(broker: Broker, messages: int, directory: Path) -> dict[str, Figures]:
    """Return the values of each step, by the names in `Scenario.figure`."""
    base = Load(
        host=HOST,
        port=broker.port,
        queue=QUEUE,
        predeclared=True,
        persistent=True,
        seconds=0,
        messages=messages,
        sizes=(BODY_BYTES,),
    )
    control = Client(base, Parser())
    control.declare(QUEUE, base)
    control.close()
    _fill(base, broker, directory)
    broker.settle()
    waiting = {"memory_mb": broker.memory_mb()}
    broker.kill()
    broker.start()
    restart = {"start_s": broker.start_s, "memory_mb": broker.memory_mb()}
    return {"waiting": waiting, "restart": restart, "drain": _drain(base, broker, directory)}


def _fill(base: Load, broker: Broker, directory: Path) -> None:
    load = _changed(base, consumers=0, confirm_window=2000)
    found = generate(load, broker, directory)
    if found["confirmed"] != base.messages:
        raise LoadError(f"{broker.name} confirmed {found['confirmed']} of {base.messages}")


def _drain(base: Load, broker: Broker, directory: Path) -> Figures:
    before_s = broker.cpu_s()
    found = generate(_changed(base, producers=0, prefetch=200), broker, directory)
    if found["received"] != base.messages:
        raise LoadError(f"{broker.name} kept {found['received']} of {base.messages} messages")
    return {
        "rate": found["receive_rate"],
        "cpu_us": (broker.cpu_s() - before_s) * 1e6 / base.messages,
        "memory_mb": broker.memory_mb(),
    }


def _changed(load: Load, **changes: int) -> Load:
    return Load(**{**vars(load), **changes})
