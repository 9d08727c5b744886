"""`make chaos-jobs STORE=embedded`: kills for ten minutes, then checks every job."""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.jobs.chaos.run import run

FAULTS_SHOWN = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--node-kills", type=int, default=50)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    plan = parser.parse_args()
    print(plan)
    with tempfile.TemporaryDirectory(prefix="leveret-chaos-") as name:
        folder = Path(name)
        with (folder / "stderr").open("w") as log:
            outcome = run(
                folder / "data",
                log,
                Random(plan.seed),
                seconds=plan.seconds,
                workers=plan.workers,
                worker_kill_s=1.0,
                node_kill_s=plan.seconds / (plan.node_kills + 1),
            )
    faults, outcome.faults = outcome.faults, []
    print(outcome)
    for fault in faults[:FAULTS_SHOWN]:
        print("fault:", fault)
    print(f"{len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
