"""Rates of counters, computed when a client reads them.

Objects only count. A read leaves a sample, at most one each second for each object. The rate is the
difference to the oldest sample of the last `WINDOW_MS`. Without readers nothing is sampled, and the
broker does no work for its statistics. The first read of an object finds no rate.

Memory: a sample has eight bytes for each counter. An object keeps the samples of `WINDOW_MS`, or
two while its counters do not change. Objects that were not read for `FORGET_MS` are forgotten, and
so are the least recently read objects beyond `OBJECTS_MAX`.
"""

import struct
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Final

import msgspec

WINDOW_MS: Final = 5_000
SAMPLE_MS: Final = 1_000
TOO_SHORT_MS: Final = 500  # a rate over a shorter time is meaningless
FORGET_MS: Final = 300_000
OBJECTS_MAX: Final = 200_000


class Rate(msgspec.Struct, frozen=True, gc=False):
    """The growth of a counter."""

    rate: float  # per second


NO_RATE: Final = Rate(0.0)


@cache
def _packing(count: int) -> struct.Struct:
    return struct.Struct(f"{count}q")


@cache
def _no_rates(count: int) -> tuple[Rate, ...]:
    return (NO_RATE,) * count


class _Samples:
    """The samples of one object."""

    __slots__ = ("packed", "times_ms")

    def __init__(self, now_ms: int, packed: bytes) -> None:
        self.times_ms = [now_ms]  # oldest first
        self.packed = [packed]

    def add(self, now_ms: int, packed: bytes) -> None:
        """Add a sample, and keep only the newest of those older than the window."""
        times_ms, all_packed = self.times_ms, self.packed
        if len(times_ms) >= 2 and all_packed[-1] == packed == all_packed[-2]:
            times_ms[-1] = now_ms  # the counters do not change
        else:
            times_ms.append(now_ms)
            all_packed.append(packed)
        while len(times_ms) > 2 and now_ms - times_ms[1] >= WINDOW_MS:
            del times_ms[0], all_packed[0]


class RateSamples:
    """The samples of all objects that were read recently."""

    def __init__(self) -> None:
        self._objects: dict[Hashable, _Samples] = {}  # least recently read first

    def __len__(self) -> int:
        return len(self._objects)

    def of(
        self, key: Hashable, counts: Sequence[int], now_ms: int, *, gauges: int = 0
    ) -> tuple[Rate, ...]:
        """Return the rate of each count. The last `gauges` counts may go down."""
        packed = _packing(len(counts)).pack(*counts)
        samples = self._objects.pop(key, None)
        if samples is None:
            self._make_room(now_ms)
            self._objects[key] = _Samples(now_ms, packed)
            return _no_rates(len(counts))
        self._objects[key] = samples
        base = samples.packed[0]
        elapsed_ms = now_ms - samples.times_ms[0]
        if now_ms - samples.times_ms[-1] >= SAMPLE_MS:
            samples.add(now_ms, packed)
        if base == packed or elapsed_ms < TOO_SHORT_MS:
            return _no_rates(len(counts))
        before = _packing(len(counts)).unpack(base)
        counters = len(counts) - gauges
        if any(counts[i] < before[i] for i in range(counters)):
            self._objects[key] = _Samples(now_ms, packed)  # a new object with the same name
            return _no_rates(len(counts))
        return _rates(before, counts, elapsed_ms)

    def clear(self) -> None:
        """Forget all samples."""
        self._objects.clear()

    def _make_room(self, now_ms: int) -> None:
        while self._objects:
            key = next(iter(self._objects))
            is_stale = now_ms - self._objects[key].times_ms[-1] >= FORGET_MS
            if not is_stale and len(self._objects) < OBJECTS_MAX:
                return
            del self._objects[key]


def _rates(before: Sequence[int], now: Sequence[int], elapsed_ms: int) -> tuple[Rate, ...]:
    return tuple(
        NO_RATE if now[i] == before[i] else Rate((now[i] - before[i]) * 1000 / elapsed_ms)
        for i in range(len(now))
    )
