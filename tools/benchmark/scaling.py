"""`make bench-scale`: CPU per message as queues, bindings, connections or backlogs grow.

Each point is a load on a new Leveret. The queues, bindings or messages are created first, then the
load runs, and CPU is measured only during the load. A rising curve shows a cost that grows with
size.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from leveret.perf.chart import Chart, Series, page
from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.protocol import Parser
from tools.benchmark import machine
from tools.benchmark.brokers import Broker, leveret
from tools.benchmark.main import DIRECTORY, print_conditions, print_progress
from tools.benchmark.measure import LoadError, generate
from tools.benchmark.results import save
from tools.ports import HOST
from tools.rabbitmq import UnavailableError

QUEUE: Final = "leveret.scale"
EXCHANGE: Final = "leveret.scale"
KEYS_MAX: Final = 2000  # distinct keys of a load: more than the route cache of a channel holds

Point = dict[str, float]


@dataclass(frozen=True)
class Curve:
    """A number that grows, such as queues, and the sizes to measure."""

    key: str
    title: str
    sizes: tuple[int, ...]
    prepare: Callable[[Client, Load, int], Load]  # creates the objects and returns the load


def _base(**changes: Any) -> Load:
    return replace(Load(prefetch=200, confirm_window=2000), **changes)


def _queues(control: Client, at: Load, size: int) -> Load:
    return replace(at, queues=size)


def _topic(control: Client, at: Load, size: int) -> Load:
    control.declare(QUEUE, at)
    control.declare_exchange(EXCHANGE, "topic", False)
    control.bind(QUEUE, EXCHANGE, [f"order.{number}.*" for number in range(size)])
    keys = tuple(f"order.{number}.new" for number in range(min(size, KEYS_MAX)))
    return replace(at, queue=QUEUE, predeclared=True, exchange=EXCHANGE, routing_keys=keys)


def _headers(control: Client, at: Load, size: int) -> Load:
    control.declare(QUEUE, at)
    control.declare_exchange(EXCHANGE, "headers", False)
    for number in range(size):
        match: tuple[tuple[str, object], ...] = (("x-match", "all"), ("shop", f"s{number}"))
        control.bind(QUEUE, EXCHANGE, [""], match)
    wanted = (("shop", "s0"), ("colour", "red"))
    keys = ("",)
    return replace(
        at, queue=QUEUE, predeclared=True, exchange=EXCHANGE, routing_keys=keys, headers=wanted
    )


def _connections(control: Client, at: Load, size: int) -> Load:
    half = max(1, size // 2)
    return replace(at, producers=half, consumers=half, queues=min(half, 10))


def _waiting(control: Client, at: Load, size: int) -> Load:
    control.declare(QUEUE, at)
    return replace(at, queue=QUEUE, predeclared=True)


CURVES: Final = (
    Curve("queues", "queues that are used in turn", (1, 10, 100, 1000, 10_000), _queues),
    Curve("topic", "topic bindings", (1, 10, 100, 1000, 10_000, 100_000), _topic),
    Curve("headers", "headers bindings", (1, 10, 100, 1000, 10_000, 100_000), _headers),
    Curve("connections", "connections", (2, 10, 100, 1000), _connections),
    Curve("waiting", "waiting messages", (10**3, 10**4, 10**5, 10**6, 10**7), _waiting),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the curves and return the exit code."""
    options = _parser().parse_args(argv)
    wanted = [word for word in options.rows.split(",") if word]
    curves = [curve for curve in CURVES if not wanted or curve.key in wanted]
    print_conditions()
    found = {**machine.facts(), "kind": "scale", "seconds": options.seconds}
    try:
        found["curves"] = {
            curve.key: measure_curve(curve, options.seconds, options.most) for curve in curves
        }
    except (UnavailableError, LoadError) as fault:
        print(f"bench-scale: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    machine.finish(found)
    _show(curves, found["curves"])
    path = save(found, keep=options.save)
    chart = DIRECTORY / "scale.html"
    chart.write_text(scale_page(found))
    print(f"saved {path.relative_to(machine.ROOT)}, drawn in {chart.relative_to(machine.ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-scale", description="Measure curves.")
    parser.add_argument("--rows", default="", help=f"curves: {','.join(c.key for c in CURVES)}")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each load (1)")
    parser.add_argument("--most", type=int, default=10**7, help="the largest size (10,000,000)")
    parser.add_argument("--save", action="store_true", help="save the result in bench/results")
    return parser


def measure_curve(curve: Curve, seconds: float, most: int) -> list[Point]:
    """Measure the points of one curve."""
    points: list[Point] = []
    for size in curve.sizes:
        if size > most:
            break
        print_progress(f"{size:,} {curve.title}")
        with leveret(DIRECTORY / "scale") as broker:
            points.append({"size": size, **_measure_point(curve, size, seconds, broker)})
    return points


def _measure_point(curve: Curve, size: int, seconds: float, broker: Broker) -> Point:
    at = _base(host=HOST, port=broker.port, seconds=seconds)
    control = Client(at, Parser())
    load = curve.prepare(control, at, size)
    if curve.key == "waiting":
        filling = replace(load, consumers=0, prefetch=0, seconds=0, messages=size)
        generate(filling, broker, DIRECTORY)
    broker.settle()
    before_s = broker.cpu_s()
    # The load itself creates its queues and connections. An idle load measures that cost.
    found = generate(load, broker, DIRECTORY)
    cpu_s = broker.cpu_s() - before_s
    control.close()
    if curve.key in ("queues", "connections"):
        cpu_s -= _setup_cpu_s(load, broker)
    return {
        "cpu_us": max(0.0, cpu_s) * 1e6 / max(1, found["received"]),
        "rate": found["receive_rate"],
        "p50_us": found["latency_us"]["p50"],
        "p99_us": found["latency_us"]["p99"],
        "memory_mb": broker.memory_mb(),
    }


def _setup_cpu_s(load: Load, broker: Broker) -> float:
    """Return the CPU time for the connections and queues of a load, without its messages."""
    before_s = broker.cpu_s()
    generate(replace(load, rate=1, burst=1, seconds=0.1), broker, DIRECTORY)
    return broker.cpu_s() - before_s


def _show(curves: Sequence[Curve], found: dict[str, list[Point]]) -> None:
    for curve in curves:
        print(f"\n{curve.title:<30} {'CPU µs':>8} {'received/s':>12} {'p50 µs':>10} {'MB':>6}")
        for point in found[curve.key]:
            print(
                f"{int(point['size']):<30,} {point['cpu_us']:>8.2f} {point['rate']:>12,.0f} "
                f"{point['p50_us']:>10,.0f} {point['memory_mb']:>6,.0f}"
            )


def scale_page(found: dict[str, Any]) -> str:
    """Return a page with a chart for each curve."""
    charts = [
        Chart(
            curve.title,
            "µs of CPU per message",
            [Series("Leveret", _places(found["curves"][curve.key]))],
            x_title="number, each ten times the one before",
            x_labels=_labels(found["curves"][curve.key]),
        )
        for curve in CURVES
        if curve.key in found["curves"]
    ]
    facts = [("commit", found["commit"][:8]), ("machine", json.dumps(found["machine"]))]
    return page("Leveret: cost and size", facts, charts)


def _places(points: list[Point]) -> list[tuple[float, float]]:
    return [(float(index), point["cpu_us"]) for index, point in enumerate(points)]


def _labels(points: list[Point]) -> dict[float, str]:
    return {float(index): f"{int(point['size']):,}" for index, point in enumerate(points)}
