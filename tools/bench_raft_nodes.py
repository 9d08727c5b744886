"""Measures nodes of a cluster as processes: three on loopback, with real links and syncs.

    python -m tools.bench_raft_nodes entries     CPU per entry of 200 bytes, of leader and follower
    python -m tools.bench_raft_nodes idle        CPU of nodes that host groups which do nothing

`entries` proposes batches of 1, 16 and 128, the next when the last is applied; the publisher is
inside of the leader's process, so that no protocol for clients is measured with it. `idle` waits
until all groups sleep, and then looks at the processor time of the processes for a while.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from leveret import build_info
from tests.cluster.process.cluster import Cluster, running
from tools.ports import HOST

BATCHES: Final = (1, 16, 128)
ENTRY_BYTES: Final = 200
SLEEP_S_MAX: Final = 120.0
LOAD_S_MAX: Final = 300.0


async def cpu_s(cluster: Cluster) -> dict[int, float]:
    return {number: (await cluster.status(number))["cpu_s"] for number in cluster.members}


async def awake(cluster: Cluster) -> int:
    """Groups that do not sleep yet, on all nodes."""
    return sum([(await cluster.status(number))["awake"] for number in cluster.members])


async def load(cluster: Cluster, leader: int, batch: int, count: int, first: int) -> float:
    """Propose from inside of the leader; seconds that it took."""
    reader, writer = await asyncio.open_connection(HOST, cluster.ports[leader])
    request = {"do": "load", "group": 1, "batch": batch, "count": count, "first": first}
    writer.write(json.dumps({**request, "bytes": ENTRY_BYTES}).encode() + b"\n")
    async with asyncio.timeout(LOAD_S_MAX):
        answer = json.loads(await reader.readline())
    writer.close()
    found: float = answer["answer"]["wall_s"]
    return found


async def entries(folder: Path, count: int) -> None:
    print(f"{'':10}{'leader':>10}{'follower':>10}{'entries/s':>12}   µs of CPU per entry")
    async with running(folder, direct=True) as cluster:
        leader = cluster.leader()
        assert leader is not None
        await load(cluster, leader.number, 16, 2000, 1)  # so that everything is warm
        first = 2001
        for batch in BATCHES:
            wanted = count if batch > 1 else count // 8
            before = await cpu_s(cluster)
            wall_s = await load(cluster, leader.number, batch, wanted, first)
            await cluster.caught_up(list(cluster.members), SLEEP_S_MAX)
            after = await cpu_s(cluster)
            first += wanted
            spent = {number: (after[number] - before[number]) / wanted for number in after}
            own = spent.pop(leader.number) * 1e6
            others = sum(spent.values()) / len(spent) * 1e6
            print(f"batch {batch:<4}{own:10.1f}{others:10.1f}{wanted / wall_s:12.0f}")


async def idle(folder: Path, groups: int, seconds: float) -> None:
    async with running(folder, "--groups", str(groups), direct=True) as cluster:
        begun_s = time.monotonic()
        async with asyncio.timeout(SLEEP_S_MAX):
            while await awake(cluster):  # noqa: ASYNC110 - what is watched is in other processes
                await asyncio.sleep(0.5)
        print(f"{groups} groups sleep {time.monotonic() - begun_s:.1f} s after the first election")
        before = await cpu_s(cluster)
        begun_s = time.monotonic()
        await asyncio.sleep(seconds)
        after = await cpu_s(cluster)
        wall_s = time.monotonic() - begun_s
        for number in cluster.members:
            leads = (await cluster.status(number))["leads"]
            share = (after[number] - before[number]) / wall_s * 100
            print(f"node {number}: {share:.2f} % of a core, leads {leads}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("entries", "idle"))
    parser.add_argument("--entries", type=int, default=40_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    print(build_info.describe())
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "entries":
            asyncio.run(entries(Path(folder), arguments.entries))
        else:
            asyncio.run(idle(Path(folder), arguments.groups, arguments.seconds))


if __name__ == "__main__":
    main()
