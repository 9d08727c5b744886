"""Runs seeds, and prints which failed and why.

python -m tests.cluster.storage --seeds 100
python -m tests.cluster.storage --first 17 --seeds 1
"""

import argparse

from leveret.errors import LeveretError
from tests.cluster.storage.run import Run, ViolationError

TURNS = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.cluster.storage")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args()
    crashes = rolls = moves = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        run = Run(seed)
        try:
            run.run(TURNS)
        except (ViolationError, AssertionError, LeveretError, OSError) as failure:
            print(f"seed {seed}: FAILED by storage: {type(failure).__name__}: {failure}")
            print(f"replay: python -m tests.cluster.storage --first {seed} --seeds 1")
            return 1
        crashes += run.crashes
        rolls += run.rolls
        moves += run.moves
    print(f"{arguments.seeds} runs passed: {crashes} power cuts, {rolls} files, {moves} moves")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
