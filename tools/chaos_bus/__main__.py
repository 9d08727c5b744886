"""`make chaos-bus`: take the broker away from a bus, ROUNDS times in each of six ways.

    python -m tools.chaos_bus --rounds 20 --broker leveret --topology fanout

Prints one row for each loss: published, handled, duplicates, lost, and how many seconds passed from
the broker being reachable to a message being handled. Fails if one message is lost, or one recovery
takes over ten seconds.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import time

from tests.bus.nodes import Leveret, Node, RabbitMQ
from tools.chaos_bus.ledger import Ledger
from tools.chaos_bus.losses import LOSSES
from tools.chaos_bus.run import layout_of, playing
from tools.rabbitmq import UnavailableError

BROKERS = {"leveret": Leveret, "rabbitmq": RabbitMQ}


def main() -> int:
    """Run the rounds of the command line. Return 1 if a message was lost or late."""
    asked = _asked()
    logging.basicConfig(level=logging.INFO if asked.verbose else logging.CRITICAL)
    print(f"seed {asked.seed}", file=sys.stderr)
    is_good = True
    for broker in asked.broker.split(","):
        for topology in asked.topology.split(","):
            try:
                node: Node = BROKERS[broker]()
            except UnavailableError as reason:
                print(f"{broker}: {reason}")
                continue
            try:
                node.start()
                is_good &= asyncio.run(_play(node, topology, asked))
            finally:
                node.close()
    return 0 if is_good else 1


async def _play(node: Node, topology: str, asked: argparse.Namespace) -> bool:
    is_good = True
    rng = random.Random(asked.seed)
    for name in asked.losses.split(","):
        ledger = Ledger()
        started_s = time.monotonic()
        try:
            async with playing(node, layout_of(topology, name), asked.rate, ledger) as play:
                for _ in range(asked.rounds):
                    await play.round(name, rng)
        except TimeoutError:
            ledger.late += 1  # the bus did not recover, or not with all messages
        row = {"broker": node.name, "topology": topology, "loss": name, **ledger.row()}
        row["took_s"] = round(time.monotonic() - started_s, 1)
        _print(row, as_json=asked.json)
        is_good &= ledger.is_good
    return is_good


def _print(row: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
    else:
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos_bus", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of each loss")
    parser.add_argument("--broker", default="leveret", help="leveret, rabbitmq, or both")
    parser.add_argument("--topology", default="fanout", help="fanout, topic, or both")
    parser.add_argument("--losses", default=",".join(LOSSES), help="with commas between")
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
