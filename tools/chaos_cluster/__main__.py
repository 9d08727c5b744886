"""`python -m tools.chaos_cluster --rounds 100 --seed 1`: one run, its figures, and its faults."""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path

from leveret import build_info
from tools.chaos.accounts import summary
from tools.chaos_cluster.faults import FAULTS
from tools.chaos_cluster.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description="Break a cluster under load, and count.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.monotonic()))
    parser.add_argument("--only", choices=sorted(FAULTS), help="draw no other fault")
    options = parser.parse_args()
    logging.disable()  # clients log every connection that they lose
    folder = Path(tempfile.mkdtemp(prefix="leveret-chaos-"))
    print(f"{build_info.describe()}, seed {options.seed}, logs in {folder}", flush=True)
    outcome = run(folder, options.rounds, options.seed, options.only)
    for name, value in vars(outcome).items():
        if name not in ("faults", "slowest_s"):
            print(f"{value:>10,} {name.replace('_', ' ')}")
    print(f"{outcome.slowest_s:>10.1f} s from a fault to the next confirm, at most")
    for fault in summary(outcome.faults):
        print(fault)
    if outcome.faults:
        print(f"data directories and logs are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
