"""Runs the scenarios of `scenarios`: each on a cluster of its own, under load.

A scenario repeats a quiet time and a cut. Afterwards every queue must be empty, and nothing lost or
invented; only messages that were not acked may come again.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from leveret.testing import RunningCluster, cluster
from tools.chaos.accounts import Sender, summary
from tools.chaos_cluster.accounts import SharedAccount
from tools.chaos_cluster.actors import AioConsumer, PikaConsumer, PikaPoller
from tools.chaos_cluster.load import SETTINGS, Consumer, Load, LoadQueue, Outcome
from tools.chaos_cluster.namespaces import namespaces
from tools.chaos_cluster.scenarios import SCENARIOS, Scenario

SUMMED: Final = (
    *("rounds", "elections", "published", "confirmed"),
    *("turned_up", "deliveries", "lost", "invented"),
)
QUEUE: Final = "queue"
DEAD: Final = "dead"
TTL_MS: Final = 1000
CONSUMERS: Final[dict[str, tuple[Consumer, ...]]] = {
    "asynchronous": (PikaConsumer, AioConsumer),
    "polling": (PikaPoller, PikaPoller),
    "mixed": (PikaConsumer, AioConsumer, PikaPoller, PikaPoller),
}


@dataclass(frozen=True)
class Times:
    """How often a scenario cuts, and how long; `long_s` replaces RabbitMQ's 30 s."""

    cuts: int = 2
    quiet_s: float = 5.0
    short_s: float = 10.0
    long_s: float = 20.0

    def cut_s(self, scenario: Scenario) -> float:
        return self.long_s if scenario.cut_s == 30 else self.short_s


def queues_of(scenario: Scenario, senders: list[Sender]) -> list[LoadQueue]:
    """Return the queue that the scenario publishes to and, if it has one, that of dead letters."""
    quorum: dict[str, object] = {"x-queue-type": "quorum"}
    consumers = CONSUMERS[scenario.consumers]
    direct = SharedAccount(QUEUE, senders)
    if not scenario.is_dead_lettering:
        return [LoadQueue(direct, quorum, consumers)]
    deadly = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-message-ttl": TTL_MS,
    }
    dead = SharedAccount(DEAD, senders, is_direct=False)
    return [
        LoadQueue(dead, quorum, consumers, is_bound=False),
        LoadQueue(direct, quorum | deadly, (PikaConsumer,), rejects=True, may_expire=True),
    ]


def cut(nodes: RunningCluster, scenario: Scenario, rng: Random, length_s: float) -> None:
    """Cut the nodes off in the shape of the scenario, for a time."""
    for source, target in sorted(scenario.shape(nodes.nodes, rng)):
        nodes.cut(source, target, one_way=True)
    time.sleep(length_s)
    nodes.heal()


def play(
    folder: Path, name: str, times: Times, seed: int, *, has_namespaces: bool = False
) -> Outcome:
    """Run one scenario, and account for its messages."""
    scenario = SCENARIOS[name]
    rng = Random(f"{seed} {name}")
    size = scenario.nodes
    with ExitStack() as stack:
        spaces = stack.enter_context(namespaces(size)) if has_namespaces else None
        nodes = stack.enter_context(cluster(size, folder=folder / name, hosts=spaces, **SETTINGS))
        load = Load(nodes, rng, lambda senders: queues_of(scenario, senders))
        load.define()
        load.start()

        def strike() -> None:
            for _ in range(times.cuts):
                time.sleep(times.quiet_s)
                cut(nodes, scenario, load.rng, times.cut_s(scenario))
                load.outcome.rounds += 1
                load.wait_whole()

        load.attempt(strike)
        load.attempt(load.finish)
        load.add_up()
        return load.outcome


def play_all(
    folder: Path, names: list[str], times: Times, seed: int, *, has_namespaces: bool = False
) -> list[str]:
    """Run scenarios one after the other, and print their figures. Return their faults."""
    faults: list[str] = []
    total = Outcome()
    for number, name in enumerate(names, 1):
        began_s = time.monotonic()
        outcome = play(folder, name, times, seed, has_namespaces=has_namespaces)
        print(f"{number:>2}/{len(names)} {name}: {figures(outcome)},", end=" ")
        print(f"{time.monotonic() - began_s:.0f} s", flush=True)
        for fault in summary(outcome.faults):
            print(f"    {fault}", flush=True)
        faults += [f"{name}: {fault}" for fault in outcome.faults]
        for field in SUMMED:
            setattr(total, field, getattr(total, field) + getattr(outcome, field))
        total.slowest_s = max(total.slowest_s, outcome.slowest_s)
    print(f"all: {figures(total)}, {len(faults)} faults")
    return faults


def figures(outcome: Outcome) -> str:
    return (
        f"{outcome.rounds} cuts, {outcome.elections} elections,"
        f" {outcome.published:,} published, {outcome.confirmed:,} confirmed,"
        f" {outcome.turned_up:,} turned up, {outcome.deliveries:,} deliveries,"
        f" {outcome.lost} lost, {outcome.invented} invented,"
        f" confirms at most {outcome.slowest_s:.1f} s after a cut"
    )
