"""`python -m tools.chaos --kills 500 --seed 1`: one run, its figures, and its faults."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from leveret import build_info
from tools.chaos.accounts import summary
from tools.chaos.run import Judge, run, tracebacks


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a broker under load, and count.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.monotonic()))
    parser.add_argument("--audit", action="store_true", help="let `pipeline audit` judge, on Spark")
    options = parser.parse_args()
    judge = _judge() if options.audit else None
    data = Path(tempfile.mkdtemp(prefix="leveret-chaos-"))
    print(f"{build_info.describe()}, seed {options.seed}", flush=True)
    with (data / "stderr").open("w+") as log:
        outcome = run(data / "data", options.kills, options.seed, log, judge)
        log.seek(0)
        broken = tracebacks(log.read())
    for name, value in vars(outcome).items():
        if name != "faults":
            print(f"{value:>10,} {name.replace('_', ' ')}")
    for fault in summary(outcome.faults):
        print(fault)
    for traceback in broken:
        print(traceback)
    if outcome.faults or broken:
        print(f"data and what the broker said are kept in {data}")
        return 1
    shutil.rmtree(data)
    return 0


def _judge() -> Judge:
    """Return the audit of the data pipeline. Spark is started before the broker."""
    from leveret.pipeline.session import spark_session
    from tools.chaos.judging import judge_by

    session = spark_session("chaos", master="local[2]", is_quick=True)
    session.sparkContext.setLogLevel("OFF")
    return judge_by(session)


if __name__ == "__main__":
    sys.exit(main())
