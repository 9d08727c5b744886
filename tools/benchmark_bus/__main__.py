"""`make bench-bus`: runs the rounds, prints the medians, and checks the required ratios."""

import argparse
import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from leveret import build_info
from tests.bus.nodes import Leveret, Node, RabbitMQ
from tools import rabbitmq
from tools.benchmark_bus import aio_pika_service, faststream_service, leveret_service
from tools.benchmark_bus.event import MakeService
from tools.benchmark_bus.lines import count_lines
from tools.benchmark_bus.measure import (
    HANDLE,
    P99,
    PUBLISH_MANY,
    PUBLISH_ONE,
    QUICK,
    Figures,
    Sizes,
    round_of,
)

OURS: Final = "leveret.bus"
FASTSTREAM: Final = "FastStream"
AIO_PIKA: Final = "aio-pika"
SERVICES: Final[dict[str, MakeService]] = {
    OURS: leveret_service.LeveretService,
    FASTSTREAM: faststream_service.FastStreamService,
    AIO_PIKA: aio_pika_service.AioPikaService,
}
MODULES: Final = {
    OURS: leveret_service,
    FASTSTREAM: faststream_service,
    AIO_PIKA: aio_pika_service,
}
BROKERS: Final[dict[str, type[Node]]] = {"leveret": Leveret, "rabbitmq": RabbitMQ}
# How many times the rate of each of the others must be ours.
AHEAD: Final = {
    PUBLISH_ONE: {FASTSTREAM: 1.0, AIO_PIKA: 0.8},
    PUBLISH_MANY: {FASTSTREAM: 1.1, AIO_PIKA: 0.9},
    HANDLE: {FASTSTREAM: 1.2, AIO_PIKA: 0.9},
}

Medians = dict[str, Figures]  # by service


def main() -> int:
    options = _options()
    logging.disable(logging.WARNING)
    print(f"{build_info.describe()}, RabbitMQ {rabbitmq.version()}", flush=True)
    found: dict[str, Any] = {"lines": {name: count_lines(each) for name, each in MODULES.items()}}
    bounds: list[tuple[str, bool]] = []
    for name in options.broker.split(","):
        medians = _measure(name, options)
        found[name] = medians
        _show(name, medians)
        bounds += _bounds(name, medians)
    print(
        "\nlines of the same service: " + ", ".join(f"{n} {c}" for n, c in found["lines"].items())
    )
    for text, met in bounds:
        print(f"{'met    ' if met else 'NOT MET'}  {text}")
    if options.save:
        Path(options.save).write_text(json.dumps(found, indent=1))
    return 0 if all(met for _, met in bounds) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the event bus beside others.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--broker", default=",".join(BROKERS), help="brokers, commas between")
    parser.add_argument("--quick", action="store_true", help="few events: does it run?")
    parser.add_argument("--save", help="write the figures to this file, as JSON")
    return parser.parse_args()


def _measure(broker: str, options: argparse.Namespace) -> Medians:
    node = BROKERS[broker]()
    try:
        node.start()
        rounds = asyncio.run(_rounds(node, options))
    finally:
        node.close()
    return {
        name: {figure: median(each[figure] for each in some) for figure in some[0]}
        for name, some in rounds.items()
    }


async def _rounds(node: Node, options: argparse.Namespace) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {name: [] for name in SERVICES}
    sizes = QUICK if options.quick else Sizes()
    # Each has a prefix of its own, so that nobody gets the events of the others.
    rivals = {name: (make, f"bench{at}-x") for at, (name, make) in enumerate(SERVICES.items())}
    for number in range(options.rounds):
        print(f"{node.name}: round {number + 1} of {options.rounds}", flush=True)
        for name, figures in (await round_of(rivals, node.url, sizes)).items():
            found[name].append(figures)
    return found


def _show(broker: str, medians: Medians) -> None:
    figures = list(next(iter(medians.values())))
    width = max(map(len, figures)) + 2
    print(f"\n{broker}, medians\n\n" + " " * width + "".join(name.rjust(14) for name in medians))
    for figure in figures:
        cells = (f"{each[figure]:,.{1 if 'ms' in figure else 0}f}" for each in medians.values())
        print(figure.ljust(width) + "".join(cell.rjust(14) for cell in cells))


def _bounds(broker: str, medians: Medians) -> Iterator[tuple[str, bool]]:
    """Return each condition that must hold, as text, and True if it does."""
    for figure, factors in AHEAD.items():
        for other, factor in factors.items():
            ratio = medians[OURS][f"{figure} /s"] / medians[other][f"{figure} /s"]
            text = f"{broker}: {figure} {ratio:.2f}× {other}, at least {factor:g}×"
            yield text, ratio >= factor
    ours_ms, others_ms = medians[OURS][P99], medians[FASTSTREAM][P99]
    text = f"{broker}: p99 {ours_ms:.1f} ms, at most {others_ms:.1f} ms of {FASTSTREAM}"
    yield text, ours_ms <= others_ms


if __name__ == "__main__":
    raise SystemExit(main())
