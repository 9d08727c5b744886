"""Random work of many groups on one log, with power cuts and kills at every step of every write.

`python -m tests.cluster.storage --seeds 1000` runs more of them.
"""

from leveret import build_info
from tests.cluster.storage.run import Run

SEEDS = 30 if build_info.is_compiled() else 12  # the sources take longer
TURNS = 60


def test_store_finds_what_was_synced_and_nothing_else(seed: int) -> None:
    crashes = rolls = moves = 0
    for number in range(SEEDS):
        run = Run(seed * 1000 + number)
        run.run(TURNS)
        crashes += run.crashes
        rolls += run.rolls
        moves += run.moves
    # The runs must have met what they are about.
    assert min(crashes, rolls, moves) > SEEDS
