"""Rounds of faults on three real processes, with a table of what each took. It fails if a confirmed
message is lost, an election takes more than 5 s, or writes go on later than 10 s after healing.

python -m tests.cluster.process --rounds 20 [--fault "kill the leader"] [--seed 7]
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from leveret import build_info
from tests.cluster.process.cluster import running
from tests.cluster.process.faults import FAULTS, PROMISED, WORDS, Figures, loaded, play


async def rounds(folder: Path, faults: list[str]) -> list[Figures]:
    found = []
    async with running(folder, *WORDS) as cluster, loaded(cluster) as load:
        for fault in faults:
            begun_s = time.monotonic()
            figures = await play(cluster, load, fault)
            found.append(figures)
            print(f"{time.monotonic() - begun_s:6.1f} s  {figures}", flush=True)
    return found


def shown(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{'':>16}"
    return f"{statistics.median(known):7.2f} {max(known):7.2f} "


def table(found: list[Figures]) -> None:
    print(f"\n{build_info.describe()}; seconds, median and worst")
    print(f"{'':22}rounds{'election':>15}{'writing':>16}{'resumed':>16}{'all caught up':>16}")
    for fault in FAULTS:
        of = [figures for figures in found if figures.fault == fault]
        if of:
            columns = (
                shown(f.election_s for f in of),
                shown(f.writing_s for f in of),
                shown(f.resumed_s for f in of),
                shown(f.caught_up_s for f in of),
            )
            print(f"{fault:22}{len(of):6}" + "".join(columns))
    print(f"{sum(f.is_disturbed for f in found)} rounds with a new leader for no reason")
    last = found[-1]
    print(f"{last.confirmed} confirmed, {last.lost} lost, {last.repeats} delivered more than once")


def verdict(found: list[Figures]) -> str | None:
    """What broke a promise, round by round; None where all kept it."""
    broken = [text for figures in found for text in figures.broken(PROMISED)]
    if broken:
        return "\n".join([*broken, f"{len(broken)} times a promise was broken"])
    print(f"elections within {PROMISED.election_s:g} s, writes within {PROMISED.resume_s:g} s")
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1, help="of each fault")
    parser.add_argument("--fault", choices=list(FAULTS), action="append")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the faults")
    arguments = parser.parse_args()
    faults = (arguments.fault or list(FAULTS)) * arguments.rounds
    random.Random(arguments.seed).shuffle(faults)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(rounds(Path(folder), faults))
    table(found)
    sys.exit(verdict(found))


if __name__ == "__main__":
    main()
