"""Fuzz connections for a given time: `make fuzz TIME=7200`.

    python -m tools.fuzz --seconds 7200 --seed 1

Each round has its own seed, which is printed before the round. To repeat a round, give its seed and
a short time. An error of the broker ends the run with a traceback and a note on how to repeat it.
"""

import argparse
import time
from collections import Counter
from random import SystemRandom
from typing import Final

from tests.fuzz.driver import Fuzz

FRAMES: Final = 20_000  # corrupted frames of one round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    closes: Counter[tuple[str, int]] = Counter()
    rounds = 0
    while rounds == 0 or time.monotonic() < end_s:
        seed = options.seed + rounds
        print(f"round {rounds + 1}: --seed {seed}", flush=True)
        fuzz = Fuzz(seed)
        fuzz.run(FRAMES)
        closes.update(fuzz.closes)
        rounds += 1
    print(f"{rounds} rounds, {rounds * FRAMES} corrupted frames; closes: {sorted(closes.items())}")


if __name__ == "__main__":
    main()
