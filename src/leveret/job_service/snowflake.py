"""Snowflakes: ids of 63 bits that rise with time and are unique without coordination.

    [41 bits: ms since EPOCH_MS | 10 bits: node | 12 bits: sequence]

`Snowflakes` makes the ids of one node. Ids never go back. Where the clock steps back, or more than
4,096 ids are made in one millisecond, the time of the ids runs ahead of the clock until the clock
catches up; `ahead_ms` says how far. After a restart the owner passes `floor_ms`, a time that no
earlier id exceeds.

Two nodes with the same number would make the same ids, so node numbers are leased.
"""

from typing import Final

EPOCH_MS: Final = 1_577_836_800_000  # 2020-01-01T00:00:00Z
NODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12
NODE_MAX: Final = (1 << NODE_BITS) - 1
SEQUENCE_MAX: Final = (1 << SEQUENCE_BITS) - 1
TIME_MAX: Final = (1 << 41) - 1  # until the year 2089
ID_MAX: Final = (1 << 63) - 1

_TIME_SHIFT: Final = NODE_BITS + SEQUENCE_BITS


class Snowflakes:
    """Makes the ids of one node, each greater than the one before."""

    def __init__(self, node: int, floor_ms: int = 0) -> None:
        if not 0 <= node <= NODE_MAX:
            raise ValueError(f"the number of a node is between 0 and {NODE_MAX}, not {node}")
        self.node: Final = node
        self._time = max(floor_ms - EPOCH_MS, 0)  # of the last id, since the epoch
        self._sequence = SEQUENCE_MAX if floor_ms else -1  # of the last id

    @property
    def last_ms(self) -> int:
        """Return the time in the last id."""
        return self._time + EPOCH_MS

    def ahead_ms(self, now_ms: int) -> int:
        """Return how far the last id is ahead of the clock."""
        return max(self.last_ms - now_ms, 0)

    def next(self, now_ms: int) -> int:
        """Return a new id with the time `now_ms`, or a later time where ids have run ahead."""
        time = now_ms - EPOCH_MS
        if time > self._time:
            self._time, self._sequence = time, 0
        elif self._sequence < SEQUENCE_MAX:
            self._sequence += 1
        else:
            self._time, self._sequence = self._time + 1, 0
        assert self._time <= TIME_MAX, "the time of the clock does not fit into an id"
        return (self._time << _TIME_SHIFT) | (self.node << SEQUENCE_BITS) | self._sequence

    def next_many(self, count: int, now_ms: int) -> list[int]:
        """Return so many new ids, as `next` would make them one after the other."""
        ids = [self.next(now_ms)] if count == 1 else []
        while len(ids) < count:
            first = self.next(now_ms)
            more = min(count - len(ids) - 1, SEQUENCE_MAX - self._sequence)
            ids.extend(range(first, first + more + 1))
            self._sequence += more
        return ids


def first_of(time_ms: int) -> int:
    """Return the lowest id of a time."""
    return (time_ms - EPOCH_MS) << _TIME_SHIFT
