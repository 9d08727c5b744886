"""Rates of counters, computed when somebody reads them.

Objects only count. A read leaves a sample behind, at most one a second for each object, and the
rate is the difference to the oldest sample of the last `WINDOW_MS`. Nobody reads: nothing is
sampled, and the broker does nothing for its statistics. The first read of an object finds no rate.

Memory: a sample is eight bytes for each counter, an object keeps `WINDOW_MS` of them, one that
stands still keeps two; what was not read for `FORGET_MS` is forgotten, and so is the least
recently read beyond `OBJECTS_MAX`.
"""

import struct
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Final

import msgspec

WINDOW_MS: Final = 5_000
SAMPLE_MS: Final = 1_000
TOO_SHORT_MS: Final = 500  # a rate over less says nothing
FORGET_MS: Final = 300_000
OBJECTS_MAX: Final = 200_000


class Rate(msgspec.Struct, frozen=True, gc=False):
    """How fast a counter grows."""

    rate: float  # a second


NO_RATE: Final = Rate(0.0)


@cache
def _form(count: int) -> struct.Struct:
    return struct.Struct(f"{count}q")


@cache
def _none(count: int) -> tuple[Rate, ...]:
    return (NO_RATE,) * count


class _Samples:
    """What is kept of one object."""

    __slots__ = ("packed", "times_ms")

    def __init__(self, now_ms: int, packed: bytes) -> None:
        self.times_ms = [now_ms]  # oldest first
        self.packed = [packed]

    def add(self, now_ms: int, packed: bytes) -> None:
        """Keep a sample; of those beyond the window only the newest stays."""
        times_ms, all_packed = self.times_ms, self.packed
        if len(times_ms) >= 2 and all_packed[-1] == packed == all_packed[-2]:
            times_ms[-1] = now_ms  # it stands still
        else:
            times_ms.append(now_ms)
            all_packed.append(packed)
        while len(times_ms) > 2 and now_ms - times_ms[1] >= WINDOW_MS:
            del times_ms[0], all_packed[0]


class RateSamples:
    """The samples of all objects that were read lately."""

    def __init__(self) -> None:
        self._objects: dict[Hashable, _Samples] = {}  # least recently read first

    def __len__(self) -> int:
        return len(self._objects)

    def of(
        self, key: Hashable, counts: Sequence[int], now_ms: int, *, gauges: int = 0
    ) -> tuple[Rate, ...]:
        """The rate of each count. The last `gauges` of them may go down."""
        packed = _form(len(counts)).pack(*counts)
        samples = self._objects.pop(key, None)
        if samples is None:
            self._make_room(now_ms)
            self._objects[key] = _Samples(now_ms, packed)
            return _none(len(counts))
        self._objects[key] = samples
        base = samples.packed[0]
        elapsed_ms = now_ms - samples.times_ms[0]
        if now_ms - samples.times_ms[-1] >= SAMPLE_MS:
            samples.add(now_ms, packed)
        if base == packed or elapsed_ms < TOO_SHORT_MS:
            return _none(len(counts))
        before = _form(len(counts)).unpack(base)
        counters = len(counts) - gauges
        if any(counts[i] < before[i] for i in range(counters)):
            self._objects[key] = _Samples(now_ms, packed)  # another object of the same name
            return _none(len(counts))
        return _rates(before, counts, elapsed_ms)

    def clear(self) -> None:
        """Begin anew: nobody has read anything."""
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
