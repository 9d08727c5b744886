"""One run: a cluster, its clients, rounds of faults, and the accounts at the end.

After each fault all nodes must vote and catch up again, and every publisher must get confirms. At
the end all confirmed messages must have been seen, none invented, none delivered after a safe ack.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from leveret.config.settings import Settings
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import wait_until
from tools.chaos.accounts import Account
from tools.chaos.run import tracebacks
from tools.chaos_cluster.actors import (
    EXCHANGE,
    FENCE,
    HEARTBEAT_S,
    Actor,
    AioConsumer,
    AioPublisher,
    PikaConsumer,
    PikaPublisher,
    connect,
)
from tools.chaos_cluster.faults import FAULTS, Round
from tools.chaos_cluster.jobs import SECRET, Jobs

CALM_S: Final = (0.5, 2.0)  # between two faults
ELECTION_MS: Final = Settings().cluster_election_timeout_ms  # not the longer one of tests
END_S: Final = 60.0  # for an actor that was told to stop


@dataclass
class Outcome:
    """The figures of a run."""

    rounds: int = 0
    published: int = 0
    confirmed: int = 0
    turned_up: int = 0  # without a confirm
    deliveries: int = 0
    lost: int = 0
    invented: int = 0
    balance: int = 0
    jobs_confirmed: int = 0
    jobs_done: int = 0
    slowest_s: float = 0.0  # from the end of a fault to the next confirm of every publisher
    faults: list[str] = field(default_factory=list)


class Chaos:
    """All participants of a run."""

    def __init__(self, nodes: RunningCluster, seed: int) -> None:
        self._nodes = nodes
        self._rng = Random(seed)
        urls = [nodes.url(name) for name in nodes.nodes]
        self.publishers: list[PikaPublisher | AioPublisher] = [
            PikaPublisher(1, urls, self._fork()),
            AioPublisher(2, urls, self._fork()),
        ]
        senders = [publisher.publishing.sender for publisher in self.publishers]
        classic = Account("classic", senders)
        quorum = Account("quorum", senders, keeps_place=False)
        self.accounts = [classic, quorum]
        self.consumers: list[Actor] = [
            PikaConsumer(classic, urls, self._fork()),
            AioConsumer(quorum, urls, self._fork()),
        ]
        self.outcome = Outcome()

    def _fork(self) -> Random:
        return Random(self._rng.getrandbits(64))

    def define(self) -> None:
        with connect(f"{self._nodes.url('a')}?heartbeat={HEARTBEAT_S}") as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            channel.queue_declare(FENCE, durable=True, arguments={"x-max-length": 1})
            for account in self.accounts:
                kind = {"x-queue-type": account.name}
                channel.queue_declare(account.name, durable=True, arguments=kind)
                channel.queue_bind(account.name, EXCHANGE)

    def start(self) -> None:
        for actor in [*self.publishers, *self.consumers]:
            actor.start()

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a step of the run, and note a fault that ends it."""
        try:
            step()
        except (TimeoutError, RuntimeError) as fault:
            self.outcome.faults.append(str(fault))

    def go(self, rounds: int, only: str | None) -> None:
        for _ in range(rounds):
            self.round(only)

    def round(self, only: str | None) -> None:
        """Let one fault happen, and wait until the cluster is whole and clients go on."""
        time.sleep(self._rng.uniform(*CALM_S))
        name = only or self._rng.choice(sorted(FAULTS))
        self.outcome.rounds += 1
        began_s = time.monotonic()
        print(f"round {self.outcome.rounds}: {name}, node {self._nodes.leader} leads", flush=True)
        FAULTS[name](Round(self._nodes, self._fork()))
        healed_s = time.monotonic()
        self._wait_for_confirms()
        confirm_s = time.monotonic() - healed_s
        self.outcome.slowest_s = max(self.outcome.slowest_s, confirm_s)
        self._nodes.wait_for_members()
        whole_s = time.monotonic() - healed_s
        print(
            f"    fault {healed_s - began_s:.1f} s, confirms after {confirm_s:.1f} s,"
            f" whole after {whole_s:.1f} s",
            flush=True,
        )

    def _wait_for_confirms(self) -> None:
        before = [len(publisher.publishing.sender.confirmed) for publisher in self.publishers]
        wait_until(
            lambda: all(
                len(publisher.publishing.sender.confirmed) > count
                for publisher, count in zip(self.publishers, before, strict=True)
            ),
            "every publisher gets confirms",
        )

    def finish(self) -> None:
        """Stop the publishers, let the consumers take everything, and stop them."""
        _end([*self.publishers])
        wait_until(self._is_drained, "the consumers have taken all messages")
        _end(self.consumers)

    def _is_drained(self) -> bool:
        """Return True if no queue has a ready message, and every safe message was seen."""
        if any(account.lost() for account in self.accounts):
            return False
        with connect(f"{self._nodes.url(self._nodes.leader)}?heartbeat={HEARTBEAT_S}") as found:
            channel = found.channel()
            return all(
                channel.queue_declare(account.name, passive=True).method.message_count == 0
                for account in self.accounts
            )

    def add_up(self) -> None:
        outcome = self.outcome
        senders = [publisher.publishing.sender for publisher in self.publishers]
        outcome.published = sum(len(sender.sent) for sender in senders)
        outcome.confirmed = sum(len(sender.confirmed) for sender in senders)
        for account in self.accounts:
            outcome.turned_up += len(account.turned_up())
            outcome.deliveries += account.deliveries
            outcome.lost += len(account.lost())
            outcome.invented += len(account.invented())
            outcome.balance += abs(account.balance())
            outcome.faults += account.faults()
        for actor in [*self.publishers, *self.consumers]:
            if actor.error is not None:
                outcome.faults.append(f"{actor.name}: {actor.error!r}")
        for name in self._nodes.nodes:
            outcome.faults += [f"node {name}: {text}" for text in tracebacks(self._nodes[name].log)]


def _end(actors: list[Actor]) -> None:
    for actor in actors:
        actor.stopping.set()
    for actor in actors:
        actor.join(END_S)
        if actor.is_alive():
            raise RuntimeError(f"{actor.name} does not end")


def run(folder: Path, rounds: int, seed: int, only: str | None = None) -> Outcome:
    """Run rounds of faults under load, then account for everything."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"jobs_token_secret": SECRET}
        settings |= {"cluster_election_timeout_ms": ELECTION_MS}
        nodes = stack.enter_context(cluster(3, folder=folder / "nodes", **settings))
        chaos = Chaos(nodes, seed)
        chaos.define()
        jobs = Jobs(folder, [nodes[name].http_port for name in nodes.nodes])
        stack.callback(jobs.close)
        chaos.start()
        chaos.attempt(lambda: chaos.go(rounds, only))
        chaos.attempt(chaos.finish)
        account = jobs.finish()
        chaos.outcome.jobs_confirmed, chaos.outcome.jobs_done = account.confirmed, account.done
        chaos.outcome.faults += [f"job {fault}" for fault in account.faults]
        chaos.add_up()
        return chaos.outcome
