"""Prints the form, and the digest of a seed's run for each schedule, to compare the two forms."""

import sys

from leveret import build_info
from tests.cluster.simulation.schedule import SCHEDULES
from tests.cluster.simulation.world import World


def main(seed: int) -> None:
    digests = [f"{World(seed, schedule).run().digest:08x}" for schedule in SCHEDULES.values()]
    print("compiled" if build_info.is_compiled() else "interpreted", *digests)


if __name__ == "__main__":
    main(int(sys.argv[1]))
