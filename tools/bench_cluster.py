"""Measure a cluster of three nodes: `make bench-cluster`.

Three real nodes and the load generator run on one machine, connected without a proxy. CPU is that
of all processes of all three nodes, from /proc. The rows of `LOADS` run at the leader. The other
figures:

    relay       what a message costs more if its clients are at a node that follows: short runs
                there and at the leader take turns, because costs change from second to second
    kill -9     from the end of the leader to the next confirm of a client that reconnects
    hand-over   the longest time between two confirms while the leader stops by SIGTERM
    follower    memory of a node that follows, with a backlog; that of a node that has led before;
                how quickly an empty node has it all

RabbitMQ × 3 has the same loads beside it, with quorum queues, at the node that leads them. Rows run
in turns, ROUNDS times, on Leveret and then on RabbitMQ; the table shows medians. `--relay-only`
measures nothing but the relay, without RabbitMQ.
"""

import argparse
import contextlib
import itertools
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pika
from pika.exceptions import AMQPError

from leveret import build_info
from leveret.config.settings import Settings
from leveret.perf.load import Load
from leveret.testing import RunningCluster, cluster
from leveret.testing.cluster import wait_until
from tools import rabbitmq
from tools.benchmark.brokers import Broker, rabbitmq_cluster
from tools.benchmark.measure import figures_of, generate

SECONDS: Final = 5.0
ROUNDS: Final = 3
BACKLOG: Final = 1_000_000
CALM_S: Final = 1.0  # before and after an end of the leader
PAIRS: Final = 5  # runs at a node that follows and at the leader, for each round and row
PAIR_S: Final = 1.5  # of each of them
REST_S: Final = 5.0  # after a backlog, until the nodes have given memory back
QUEUE: Final = "bench"
ELECTION_MS: Final = Settings().cluster_election_timeout_ms  # not the longer one of tests

_CONFIRMED: Final = Load(persistent=True, confirm_window=200, prefetch=400, ack_every=200)
_MANY: Final = replace(_CONFIRMED, confirm_window=2000, prefetch=4000)
LOADS: Final = {
    "persistent 16 B, confirms 200": _CONFIRMED,
    "persistent 16 B, confirms 2000": _MANY,
    "persistent 1 KiB, confirms 200": replace(_CONFIRMED, sizes=(1024,)),
    "4 × 4 × 4, confirms 2000": replace(_MANY, producers=4, consumers=4, queues=4),
    "stream, confirms 200": replace(_CONFIRMED, queue_type="stream"),
    "one message at a time": replace(_CONFIRMED, confirm_window=1, burst=1),
    "2,000 messages a second": replace(_CONFIRMED, rate=2000, burst=1),
}
Row = tuple[float, ...]  # CPU µs of all nodes, received a second, p50 µs of delivery and confirm
RELAYED: Final = ("persistent 16 B, confirms 200", "2,000 messages a second")


@dataclass
class Pair:
    """A run at a node that follows, and one at the leader just before or after it."""

    more_us: float  # CPU of all nodes for a message
    later_us: float  # the median of the confirms
    block_messages: float  # messages in a block, relayed
    direct_block_messages: float


class Bench:
    """A running cluster, and what was measured."""

    def __init__(self, nodes: RunningCluster, folder: Path, seconds: float) -> None:
        self._nodes = nodes
        self._folder = folder
        self._seconds = seconds
        self.rows: dict[str, list[Row]] = {}
        self.rival_rows: dict[str, list[Row]] = {}  # of RabbitMQ
        self.pairs: dict[str, list[Pair]] = {}

    def _view(self, name: str) -> Broker:
        """Return a node as the benchmark's parts want it."""
        process = self._nodes[name].process
        assert process is not None
        view = Broker(f"node {name}", self._nodes[name].amqp_port, [], {}, self._folder)
        view.pid = process.pid
        return view

    def load(self, name: str, at: str, seconds: float) -> tuple[Row, float]:
        """Measure a load at a node. Return its row, and the messages in a block."""
        load = replace(LOADS[name], seconds=seconds)
        everyone = {node: self._view(node) for node in self._nodes.nodes}
        before = self._committed()
        row, received = measure(load, everyone, at, self._folder)
        return row, received / max(1, self._committed() - before)

    def _committed(self) -> int:
        """Return the number of the last committed block."""
        facts = self._nodes[self._nodes.leader].facts()
        assert facts is not None
        return int(facts["raft"]["commit"])

    def pair(self, name: str, leader: str, follower: str, *, relayed_first: bool) -> None:
        """Run a load at a node that follows and at the leader."""
        found = {}
        for at in (follower, leader) if relayed_first else (leader, follower):
            found[at] = self.load(name, at, min(PAIR_S, self._seconds))
        (relayed, block_messages), (direct, direct_block_messages) = found[follower], found[leader]
        self.rows.setdefault(f"{name}, at a follower", []).append(relayed)
        pair = Pair(
            relayed[0] - direct[0], relayed[3] - direct[3], block_messages, direct_block_messages
        )
        self.pairs.setdefault(name, []).append(pair)

    def rival_load(self, name: str, rivals: dict[str, Broker]) -> None:
        """Measure a load at the first node of RabbitMQ, which then leads the queues."""
        load = replace(LOADS[name], seconds=self._seconds)
        load = replace(load, queue_type=load.queue_type or "quorum")
        row, _ = measure(load, rivals, next(iter(rivals)), self._folder)
        self.rival_rows.setdefault(name, []).append(row)

    def all_loads(self, rivals: dict[str, Broker]) -> None:
        """Run all loads, each on RabbitMQ, too, if there are nodes of it."""
        leader = self._nodes.leader
        for name in LOADS:
            row, _ = self.load(name, leader, self._seconds)
            self.rows.setdefault(name, []).append(row)
            if rivals:
                self.rival_load(name, rivals)

    def all_pairs(self, count: int) -> None:
        """Run pairs of loads at a node that follows and at the leader."""
        leader, follower = self._nodes.leader, self._nodes.followers[0]
        for name, number in itertools.product(RELAYED, range(count)):
            self.pair(name, leader, follower, relayed_first=number % 2 == 0)

    def gap(self, end: Callable[[str], None]) -> float:
        """Return the longest time between two confirms while `end` ends the leader."""
        client = Reconnecting([self._nodes.url(name) for name in self._nodes.nodes])
        client.start()
        client.wait_for(1)
        time.sleep(CALM_S)
        leader = self._nodes.leader
        end(leader)
        client.wait_for(len(client.confirmed_s) + 1)
        time.sleep(CALM_S)
        client.stopping.set()
        client.join()
        self._nodes.start(leader)
        self._nodes.wait_for_members()
        times = client.confirmed_s
        return max(after - before for before, after in itertools.pairwise(times))

    def kill(self, name: str) -> None:
        self._nodes.kill(name)

    def hand_over(self, name: str) -> None:
        self._nodes[name].signal(signal.SIGTERM)
        self._nodes[name].wait_ended()

    def fill(self, messages: int) -> None:
        """Let 1 KiB messages wait in a queue."""
        connection = pika.BlockingConnection(pika.URLParameters(self._nodes.url("a")))
        connection.channel().queue_declare(QUEUE, durable=True)
        connection.close()
        load = replace(_MANY, sizes=(1024,), consumers=0, messages=messages, seconds=0, queue=QUEUE)
        generate(replace(load, predeclared=True), self._view(self._nodes.leader), self._folder)
        self._nodes.wait_for_members()

    def follower_mb(self) -> float:
        """Return the memory of the larger node that follows, at rest."""
        time.sleep(REST_S)
        return max(self._view(name).memory_mb() for name in self._nodes.followers)

    def former_leader_mb(self) -> float:
        """Return the memory of a node that follows after it has led, at rest."""
        old, new = self._nodes.leader, self._nodes.followers[0]
        words = ["cluster", "lead", new, "--url", self._nodes.http_url(old)]
        subprocess.run([sys.executable, "-m", "leveret", "ctl", *words], check=True)
        self._nodes.wait_for_members()
        time.sleep(REST_S)
        return self._view(old).memory_mb()

    def catch_up_mb_s(self) -> float:
        """Return how quickly an empty node gets everything, from its start until it votes."""
        name, leader = self._nodes.followers[0], self._nodes.leader
        self._nodes.kill(name)
        self._nodes.wipe(name)
        words = ["cluster", "remove", name, "--url", self._nodes.http_url(leader)]
        subprocess.run([sys.executable, "-m", "leveret", "ctl", *words], check=True)
        size = sum(path.stat().st_size for path in self._nodes[leader].data.glob("*.log"))
        began_s = time.monotonic()
        self._nodes.start(name)
        self._nodes.wait_for_members()
        return size / 1e6 / (time.monotonic() - began_s)


def measure(load: Load, everyone: dict[str, Broker], at: str, folder: Path) -> tuple[Row, int]:
    """Measure a load at one of several nodes. Return its row, and the received messages."""
    before_s = sum(broker.cpu_s() for broker in everyone.values())
    found = generate(load, everyone[at], folder)
    spent_s = sum(broker.cpu_s() for broker in everyone.values()) - before_s
    figures = figures_of(found, spent_s)
    confirm_us = found["confirm_latency_us"]["p50"]
    row = figures["cpu_us"], figures["rate"], figures["p50_us"], confirm_us
    return row, int(found["received"])


class Reconnecting(threading.Thread):
    """A client that publishes one message after the other, and reconnects to the next node."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self.stopping = threading.Event()
        self.confirmed_s: list[float] = []

    def run(self) -> None:
        at = 0
        while not self.stopping.is_set():
            at += 1
            try:
                self._use(self._urls[at % len(self._urls)])
            except (AMQPError, OSError):
                continue

    def _use(self, url: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=0"))
        channel = connection.channel()
        channel.queue_declare("gap", durable=True, arguments={"x-max-length": 1})
        channel.confirm_delivery()
        while not self.stopping.is_set():
            channel.basic_publish("", "gap", b"", pika.BasicProperties(delivery_mode=2))
            self.confirmed_s.append(time.monotonic())
        connection.close()

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.confirmed_s) >= count, "a message is confirmed")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a cluster of three nodes.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of the relay, for each round")
    parser.add_argument("--relay-only", action="store_true", help="measure nothing but the relay")
    parser.add_argument("--backlog", type=int, default=BACKLOG, help="messages of 1 KiB; 0: none")
    parser.add_argument(
        "--rabbitmq",
        action=argparse.BooleanOptionalAction,
        default=rabbitmq.SERVER.exists(),
        help="measure RabbitMQ × 3 beside it; by default if it is installed",
    )
    options = parser.parse_args()
    print(f"{build_info.describe()}, three nodes and the load on one machine", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="leveret-bench-") as name,
        contextlib.ExitStack() as stack,
        cluster(3, is_direct=True, cluster_election_timeout_ms=ELECTION_MS) as nodes,
    ):
        Path(name).chmod(0o755)  # RabbitMQ has a user of its own
        bench = Bench(nodes, Path(name), options.seconds)
        rivals: list[Broker] = []
        if options.rabbitmq and not options.relay_only:
            rivals = stack.enter_context(rabbitmq_cluster(Path(name), 3))
            print(f"beside it RabbitMQ {rabbitmq.version()} × 3, quorum queues", flush=True)
        for _ in range(options.rounds):
            if not options.relay_only:
                bench.all_loads({broker.name: broker for broker in rivals})
            bench.all_pairs(options.pairs)
        stack.close()  # RabbitMQ takes some CPU even if it is idle
        kills: list[float] = []
        hands: list[float] = []
        for _ in range(0 if options.relay_only else options.rounds):
            kills.append(bench.gap(bench.kill))
            hands.append(bench.gap(bench.hand_over))
        show(bench.rows, bench.rival_rows)
        for row, pairs in bench.pairs.items():
            print(f"relay, {row}: {summary(pairs)}")
        if options.relay_only:
            return
        print(f"kill -9 of the leader to the next confirm: {statistics.median(kills):.2f} s")
        print(f"hand-over by SIGTERM, time without service: {statistics.median(hands):.2f} s")
        if options.backlog:
            bench.fill(options.backlog)
            print(f"{options.backlog:,} × 1 KiB waiting:")
            print(f"  memory of a node that follows: {bench.follower_mb():.0f} MB")
            print(f"  memory of a node that has led before: {bench.former_leader_mb():.0f} MB")
            print(f"  kill -9 of the leader to the next confirm: {bench.gap(bench.kill):.2f} s")
            print(f"  catch-up of an empty node: {bench.catch_up_mb_s():.0f} MB/s")


def summary(pairs: list[Pair]) -> str:
    """Return what a relayed message costs more, with quartiles, and how large the blocks are."""
    low, middle, high = statistics.quantiles([pair.more_us for pair in pairs], n=4)
    later = statistics.median(pair.later_us for pair in pairs)
    relayed = statistics.median(pair.block_messages for pair in pairs)
    direct = statistics.median(pair.direct_block_messages for pair in pairs)
    return (
        f"{middle:.1f} µs of CPU more a message (quartiles {low:.1f} and {high:.1f}, "
        f"{len(pairs)} pairs), confirmed {later:.0f} µs later; "
        f"{relayed:.0f} messages in a block, at the leader {direct:.0f}"
    )


def show(rows: dict[str, list[Row]], rival_rows: dict[str, list[Row]]) -> None:
    """Print the medians of all rounds as a table, with RabbitMQ's and the ratio of the rates."""
    columns = "CPU µs of all three | received/s | delivery p50 µs | confirm p50 µs"
    rival = f" RabbitMQ: {columns} | rate, times RabbitMQ's |" if rival_rows else ""
    print(f"| row | {columns} |{rival}")
    print("| --- " * (10 if rival_rows else 5) + "|")
    for title, found in rows.items():
        line = f"| {title} | {_cells(_medians(found))} |"
        if title in rival_rows:
            others = _medians(rival_rows[title])
            ratio = _medians(found)[1] / max(1, others[1])
            line += f" {_cells(others)} | {ratio:.1f} |"
        elif rival_rows:
            line += " |" * 5
        print(line)


def _medians(rounds: list[Row]) -> Row:
    return tuple(statistics.median(column) for column in zip(*rounds, strict=True))


def _cells(row: Row) -> str:
    cpu, rate, delivery, confirm = row
    return f"{cpu:.1f} | {rate:,.0f} | {delivery:,.0f} | {confirm:,.0f}"


if __name__ == "__main__":
    main()
