"""Settled sequence numbers, compared with a plain set."""

from random import Random

from leveret.engine.backlog.settled_numbers import SettledNumbers


def test_missing_numbers_equal_those_of_a_plain_set(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(200):
        gone = SettledNumbers()
        model: set[int] = set()
        for seq in rng.sample(range(60), rng.randrange(60)):
            gone.add(seq)
            model.add(seq)
        asked = sorted(rng.sample(range(70), rng.randrange(40)))
        assert gone.missing(asked) == [seq for seq in asked if seq not in model]
