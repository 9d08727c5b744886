"""Runs seeds, and prints which failed, why, and how to replay them.

python -m tests.cluster.simulation --seeds 1000                   all schedules
python -m tests.cluster.simulation --schedule harsh --seed 17     one run, with a trace
"""

import argparse
import time

from tests.cluster.simulation.schedule import SCHEDULES
from tests.cluster.simulation.world import Result, World

PROGRESS_EVERY = 500


def main() -> int:
    arguments = _arguments()
    names = [arguments.schedule] if arguments.schedule else list(SCHEDULES)
    if arguments.seed is not None:
        return _replay(arguments.seed, names)
    return _many(range(arguments.first, arguments.first + arguments.seeds), names, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.cluster.simulation")
    parser.add_argument("--schedule", choices=list(SCHEDULES))
    parser.add_argument("--seed", type=int, help="run this one, and tell what happens")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run of each schedule")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    return parser.parse_args()


def _replay(seed: int, names: list[str]) -> int:
    for name in names:
        world = World(seed, SCHEDULES[name])
        world.is_loud = True
        result = world.run()
        _show(result)
        if result.failure is not None:
            return 1
    return 0


def _many(seeds: range, names: list[str], arguments: argparse.Namespace) -> int:
    failures = 0
    total = 0
    begun = time.process_time()
    steps = committed = elections = reads = copies = losses = 0
    for seed in seeds:
        if seed != seeds.start and (seed - seeds.start) % PROGRESS_EVERY == 0:
            print(f"{total} runs so far, {failures} failed", flush=True)
        for name in names:
            result = World(seed, SCHEDULES[name]).run()
            total += 1
            steps += result.steps
            committed += result.committed
            elections += result.elections
            reads += result.reads
            copies += result.copies
            losses += result.losses
            if result.failure is not None:
                failures += 1
                _show(result)
                print("\n".join(result.notes[-20:]))
                if failures >= arguments.failures:
                    return 1
    spent = time.process_time() - begun
    print(
        f"{total} runs, {failures} failed; {steps} steps, {elections} elections, "
        f"{committed} blocks committed, {reads} reads from files, {copies} copies, "
        f"{losses} lost disks; {spent:.1f} s of CPU"
    )
    return 1 if failures else 0


def _show(result: Result) -> None:
    outcome = f"FAILED by {result.rule}: {result.failure}" if result.failure else "passed"
    print(
        f"seed {result.seed} {result.schedule}: {outcome} "
        f"({result.steps} steps, {result.elections} elections, {result.committed} committed, "
        f"{result.reads} reads, {result.copies} copies, {result.losses} lost disks, "
        f"digest {result.digest:08x})"
    )
    if result.failure is not None:
        print(f"replay: {result.replay()}")


if __name__ == "__main__":
    raise SystemExit(main())
