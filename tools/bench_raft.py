"""Measures what an entry costs a member of a Raft group: CPU microseconds per entry per node.

Three members in one process, entries of 200 bytes, proposed in batches of 1, 16 and 128; the next
batch when the last is applied everywhere. "wire" encodes and decodes every message, "log" adds the
store of each node: blocks with their checksums, written to files, without sync. Every entry's bytes
are read when it is applied. The median of the rounds is shown.

Then what groups cost in which nothing happens: three hosts with a thousand groups each, awake and
asleep, at ten ticks in a second and with a codec; percent of a core per node.

    python tools/bench_raft.py [--rounds 5] [--entries 30000] [--groups 1000]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from leveret import build_info
from leveret.cluster.host import Host
from leveret.cluster.host_config import HostConfig
from leveret.cluster.machine import Machine
from leveret.cluster.raft.codec import decode_frame, encode_frame
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.files import Files
from leveret.cluster.store.store import Store
from leveret.storage.disk import Disk

BATCHES = (1, 16, 128)
ENTRY_BYTES = 200
GROUP = 1
# Entries that stay in memory before the log is cut: a host would make snapshots.
CUT_EVERY = 4096
TICKS_PER_S = 10
IDLE_TICKS = 100  # measured: ten seconds


class NodeLog:
    """The store of one node, in real files."""

    def __init__(self, folder: Path, node: int, members: Members) -> None:
        disk = Disk(folder / str(node))
        disk.prepare()
        disk.syncs = False
        self.files = Files(disk)
        self.store = Store.open(self.files, node)
        self.store.create(GROUP, members)

    def write(self, ready: Ready) -> None:
        self.store.add(GROUP, ready)
        block = self.store.take()
        if block is not None:
            self.files.write(block)
            self.store.written(block)


class Bench:
    """Three members and what carries their messages."""

    def __init__(self, has_wire: bool, folder: Path | None) -> None:
        self.has_wire = has_wire
        members = Members([1, 2, 3], [])
        self.logs: dict[int, NodeLog] = {}
        if folder is not None:
            self.logs = {node: NodeLog(folder, node, members) for node in members.voters}
        self.rafts = {node: Raft(Config(node, GROUP), Stored(members), node) for node in (1, 2, 3)}
        self.applied_bytes = 0

    def elect(self) -> Raft:
        while not any(raft.role == LEADER for raft in self.rafts.values()):
            for raft in self.rafts.values():
                raft.tick()
            self.run()
        return next(raft for raft in self.rafts.values() if raft.role == LEADER)

    def run(self) -> None:
        """Until nobody has anything to do."""
        is_busy = True
        while is_busy:
            is_busy = False
            for node, raft in self.rafts.items():
                ready = raft.ready()
                if ready is None:
                    continue
                is_busy = True
                if self.logs and ready.has_writes():
                    self.logs[node].write(ready)
                self.send(ready.messages)
                for entry in ready.committed:
                    self.applied_bytes += len(entry.data)
                raft.advance(ready)

    def send(self, messages: list[Message]) -> None:
        if not self.has_wire:
            for message in messages:
                self.rafts[message.target].step(message)
            return
        by_target: dict[int, list[Message]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(message)
        for target, batch in by_target.items():
            raft = self.rafts[target]
            for message in decode_frame(encode_frame(batch[0].source, target, batch)):
                raft.step(message)

    def cut(self) -> None:
        for raft in self.rafts.values():
            raft.compact(b"state", [])
        self.run()


def measure(name: str, batch: int, entries: int) -> float:
    """Microseconds of CPU per entry per node."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(name != "in memory", Path(folder) if name == "log" else None)
        return run(bench, batch, entries)


def run(bench: Bench, batch: int, entries: int) -> float:
    leader = bench.elect()
    commands = [bytes(ENTRY_BYTES)] * batch
    since_cut = 0
    begun = time.process_time()
    for _ in range(entries // batch):
        leader.propose(commands)
        bench.run()
        since_cut += batch
        if since_cut >= CUT_EVERY:
            bench.cut()
            since_cut = 0
    spent = time.process_time() - begun
    count = entries // batch * batch
    assert bench.applied_bytes == count * ENTRY_BYTES * 3
    return spent / count / 3 * 1e6


class Nodes:
    """Three hosts with the same groups, and frames between them."""

    def __init__(self, groups: int, may_sleep: bool) -> None:
        config = HostConfig()
        config.wakes_max = groups
        if not may_sleep:
            config.sleep_ticks = 1 << 40
        self.hosts = {node: Host(node, 1, node, config) for node in (1, 2, 3)}
        for host in self.hosts.values():
            for group in range(1, groups + 1):
                host.add_group(group, Stored(Members([1, 2, 3], [])), Machine())

    def tick(self, count: int) -> None:
        for _ in range(count):
            for host in self.hosts.values():
                host.tick()
            self.run()

    def run(self) -> None:
        """Until nobody has anything to do."""
        is_busy = True
        while is_busy:
            is_busy = False
            for host in self.hosts.values():
                turn = host.turn()
                if turn is None:
                    continue
                is_busy = True
                for target, messages in turn.messages.items():
                    frame = encode_frame(host.node, target, messages)
                    self.hosts[target].receive(decode_frame(frame))
                host.done(turn)


def measure_idle(groups: int, may_sleep: bool) -> float:
    """Percent of a core per node."""
    nodes = Nodes(groups, may_sleep)
    nodes.tick(100)  # elections, and falling asleep
    awake = sum(host.awake_count() for host in nodes.hosts.values())
    assert awake == (0 if may_sleep else groups * 3)
    begun = time.process_time()
    nodes.tick(IDLE_TICKS)
    spent = time.process_time() - begun
    return spent / 3 / (IDLE_TICKS / TICKS_PER_S) * 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, default=30_000)
    parser.add_argument("--groups", type=int, default=1_000)
    arguments = parser.parse_args()
    print(f"{build_info.describe()}; µs of CPU per entry per node, entries of {ENTRY_BYTES} bytes")
    print(f"{'':10}" + "".join(f"{f'batch {batch}':>12}" for batch in BATCHES))
    for name in ("in memory", "wire", "log"):
        row = []
        for batch in BATCHES:
            entries = arguments.entries if batch > 1 else arguments.entries // 4
            figures = [measure(name, batch, entries) for _ in range(arguments.rounds)]
            row.append(statistics.median(figures))
        print(f"{name:10}" + "".join(f"{figure:12.2f}" for figure in row))
    for name, may_sleep in (("awake", False), ("asleep", True)):
        figures = [measure_idle(arguments.groups, may_sleep) for _ in range(arguments.rounds)]
        share = statistics.median(figures)
        print(f"{arguments.groups} idle groups, {name}: {share:.4f} % of a core per node")


if __name__ == "__main__":
    main()
