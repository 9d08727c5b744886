"""Measures what an entry costs a member of a Raft group: CPU microseconds per entry per node.

Three members in one process, entries of 200 bytes, proposed in batches of 1, 16 and 128; the next
batch when the last is applied everywhere. "wire" encodes and decodes every message, "log" adds the
store of each node: blocks with their checksums, written to files, without sync. Every entry's bytes
are read when it is applied. The median of the rounds is shown.

    python tools/bench_raft.py [--rounds 5] [--entries 30000]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from leveret import build_info
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, default=30_000)
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


if __name__ == "__main__":
    main()
