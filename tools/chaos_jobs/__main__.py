"""`make chaos-jobs`: do harm for ten minutes, then account for every job."""

import argparse
import sys
import time
from dataclasses import fields

from tools.chaos_jobs.run import Plan, run

FAULTS_SHOWN = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for one in fields(Plan):
        flag = "--" + one.name.replace("_", "-")
        parser.add_argument(flag, type=type(one.default), default=one.default)
    plan = Plan(**vars(parser.parse_args()))
    print(plan)
    begin = time.monotonic()
    account = run(plan, print)
    print(
        f"{account.confirmed} jobs confirmed, {account.refused} refused, {account.unknown} cut off;"
        f" {account.done} done, {account.cut_off} acks cut off, {account.again} handed out again,"
        f" {account.stale} stale acks; {account.quick} acks by Redis alone;"
        f" {account.late} handed out that were refused while no server answered;"
        f" {time.monotonic() - begin:.0f} s"
    )
    for line in account.outages:
        print(line)
    if not account.quick:
        print("Redis alone has taken no ack: this run says nothing about acks of prefetched jobs")
    for story in account.stories:
        print("a job with a fault:", *story, sep="\n")
    for fault in account.faults[:FAULTS_SHOWN]:
        print("fault:", fault)
    print(
        f"{len(account.faults)} faults: {account.came_back} jobs handed out after their ack,"
        f" {account.twice} done twice, {account.lost} lost"
    )
    sys.exit(1 if account.faults else 0)


if __name__ == "__main__":
    main()
