"""Runs whole clusters under faults, and prints which seeds failed, why, and how to replay them.

python -m tests.simulated.cluster --seeds 100      many runs
python -m tests.simulated.cluster --seed 17        one run, with everything that happens
"""

import argparse
import gc
import logging
import time
import traceback

from tests.simulated.cluster.nemesis import run

PROGRESS_EVERY = 100


def main() -> int:
    arguments = _arguments()
    if arguments.seed is not None:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
        return 0 if _passes(arguments.seed, is_loud=True) else 1
    logging.disable(logging.CRITICAL)
    begun_s = time.process_time()
    failures = 0
    for number in range(arguments.seeds):
        if number and number % PROGRESS_EVERY == 0:
            print(f"{number} clusters so far, {failures} failed", flush=True)
        gc.collect()  # the disks of a cluster are large
        if not _passes(arguments.first + number, is_loud=False):
            failures += 1
            if failures >= arguments.failures:
                return 1
    spent_s = time.process_time() - begun_s
    print(f"{arguments.seeds} clusters, {failures} failed; {spent_s:.1f} s of CPU")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulated.cluster")
    parser.add_argument("--seed", type=int, help="run this one, and tell what happens")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    return parser.parse_args()


def _passes(seed: int, *, is_loud: bool) -> bool:
    """Run a seed; print why it failed, if it did."""
    try:
        storm = run(seed)
    except Exception as fault:
        if is_loud or not isinstance(fault, AssertionError):
            traceback.print_exc()
        print(f"FAILED {fault}\nreplay: make sim SEED={seed}", flush=True)
        return False
    if is_loud:
        print("\n".join(storm.happened))
        print(f"seed {seed}: passed, {len(storm.accounts.confirmed)} messages confirmed")
    return True


if __name__ == "__main__":
    raise SystemExit(main())
