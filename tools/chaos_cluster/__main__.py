"""`python -m tools.chaos_cluster --rounds 100 --seed 1`: one run, its figures, and its faults.

With `--partitions` it runs the fourteen scenarios of RabbitMQ's Jepsen run instead.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from leveret import build_info
from leveret.errors import ConfigError
from tools.chaos.accounts import summary
from tools.chaos_cluster.faults import FAULTS
from tools.chaos_cluster.network_faults import NETWORK_FAULTS
from tools.chaos_cluster.partitions import Times, play_all
from tools.chaos_cluster.run import run
from tools.chaos_cluster.scenarios import SCENARIOS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Break a cluster under load, and count.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.monotonic()))
    parser.add_argument(
        "--only", choices=sorted([*FAULTS, *NETWORK_FAULTS]), help="draw no other fault"
    )
    parser.add_argument(
        "--namespaces",
        action="store_true",
        help="run each node in a network namespace of its own: cuts drop packets, and further"
        f" faults delay, lose and reorder them ({', '.join(NETWORK_FAULTS)}). This needs root and"
        " Debian's package iproute2.",
    )
    parser.add_argument(
        "--spark",
        action="store_true",
        help="publish to a stream too, and let Spark read it again and again; needs Java",
    )
    group = parser.add_argument_group(
        "partitions",
        "The fourteen scenarios of RabbitMQ's Jepsen run. The default times are shorter than"
        " RabbitMQ's: there, quiet times of 20 s and cuts of 10 or 30 s, for three minutes.",
    )
    group.add_argument("--partitions", action="store_true", help="run all of them")
    group.add_argument("--scenario", choices=list(SCENARIOS), help="run only this one")
    times = Times()
    group.add_argument("--cuts", type=int, default=times.cuts, help="of a scenario (%(default)s)")
    group.add_argument(
        "--quiet", type=float, default=times.quiet_s, help="seconds before a cut (%(default)s)"
    )
    group.add_argument(
        "--short-cut",
        type=float,
        default=times.short_s,
        help="seconds of a cut that RabbitMQ makes for 10 s (%(default)s)",
    )
    group.add_argument(
        "--long-cut",
        type=float,
        default=times.long_s,
        help="seconds of a cut that RabbitMQ makes for 30 s (%(default)s)",
    )
    options = parser.parse_args()
    if options.spark and (options.partitions or options.scenario):
        parser.error("--spark is for rounds of faults, not for partitions")
    if options.only in NETWORK_FAULTS and not options.namespaces:
        parser.error(f"--only {options.only} needs --namespaces")
    return options


def main() -> int:
    options = parse()
    logging.disable()  # clients log every connection that they lose
    folder = Path(tempfile.mkdtemp(prefix="leveret-chaos-"))
    print(f"{build_info.describe()}, seed {options.seed}, logs in {folder}", flush=True)
    try:
        if options.partitions or options.scenario:
            is_well = play_partitions(folder, options)
        else:
            is_well = play_rounds(folder, options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        shutil.rmtree(folder)
        return 2
    if not is_well:
        print(f"data directories and logs are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def play_partitions(folder: Path, options: argparse.Namespace) -> bool:
    names = [options.scenario] if options.scenario else list(SCENARIOS)
    times = Times(options.cuts, options.quiet, options.short_cut, options.long_cut)
    faults = play_all(folder, names, times, options.seed, has_namespaces=options.namespaces)
    return not faults


def play_rounds(folder: Path, options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        make_reader = None
        if options.spark:
            from tools.chaos_cluster.spark_reader import spark  # other runs need no PySpark

            make_reader = stack.enter_context(spark())
        outcome = run(
            folder,
            options.rounds,
            options.seed,
            options.only,
            has_namespaces=options.namespaces,
            make_reader=make_reader,
        )
    for name, value in vars(outcome).items():
        if name not in ("faults", "slowest_s"):
            print(f"{value:>10,} {name.replace('_', ' ')}")
    print(f"{outcome.slowest_s:>10.1f} s from a fault to the next confirm, at most")
    for fault in summary(outcome.faults):
        print(fault)
    return not outcome.faults


if __name__ == "__main__":
    sys.exit(main())
