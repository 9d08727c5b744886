"""Random numbers that can be repeated: they follow from a seed, the same in both forms.

Election timeouts must differ between members, or all members would start elections at the same time
for ever. That needs no strong randomness, only a different seed for each member. With a given seed
a run of a whole cluster can be replayed exactly.
"""

from typing import Final

from mypy_extensions import i64

_FACTOR: Final = 1_103_515_245
_MASK: Final = 0x7FFF_FFFF


class Rng:
    """A linear congruential generator of 31 bits: its products fit 63 bits and never wrap."""

    def __init__(self, seed: i64) -> None:
        self.state: i64 = ((seed & _MASK) * 2_654_435_761 + 12_345) & _MASK

    def below(self, limit: i64) -> i64:
        """Return a number from 0 to `limit` - 1."""
        assert limit > 0
        self.state = (self.state * _FACTOR + 12_345) & _MASK
        # The low bits of a linear congruential generator have a short period.
        return (self.state >> 8) % limit
