"""How often and how late things are tried again: messages (`RetryPolicy`), connections (`Backoff`).

A policy names its delays. Each is a queue at the broker, so that a message with a short delay never
waits behind one with a long delay; that is why the number of different delays is bounded.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from leveret.bus.topology import Layout

DELAYS_MAX: Final = 16  # different ones of a policy
RETRIES_MAX: Final = 1_000
DELAY_MS_MAX: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True)
class RetryPolicy:
    """A handler's failed messages come back after these delays, the last one again and again."""

    retries_max: int
    delays_ms: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.retries_max <= RETRIES_MAX:
            raise ValueError(f"retries_max is from 0 to {RETRIES_MAX}, not {self.retries_max}")
        if not self.delays_ms or len(set(self.delays_ms)) > DELAYS_MAX:
            raise ValueError(f"a policy has 1 to {DELAYS_MAX} different delays")
        if not all(1 <= delay_ms <= DELAY_MS_MAX for delay_ms in self.delays_ms):
            raise ValueError(f"a delay is from 1 to {DELAY_MS_MAX} ms")

    def delay_ms(self, retries: int) -> int:
        """How long a message waits that was tried again so often before."""
        return self.delays_ms[min(retries, len(self.delays_ms) - 1)]

    @classmethod
    def of(cls, layout: Layout) -> "RetryPolicy":
        """What the topology itself says."""
        return cls(layout.retries_max, (layout.first_delay_ms,))

    @classmethod
    def exponential(cls, retries_max: int, first_ms: int, last_ms: int) -> "RetryPolicy":
        """Delays that double from `first_ms` up to `last_ms`."""
        if not 1 <= first_ms <= last_ms:
            raise ValueError(f"delays go from 1 ms or more up to the last, not {first_ms} ms")
        delays_ms = [first_ms]
        while delays_ms[-1] * 2 <= last_ms:
            delays_ms.append(delays_ms[-1] * 2)
        if delays_ms[-1] < last_ms:
            delays_ms.append(last_ms)
        return cls(retries_max, tuple(delays_ms))


class Backoff:
    """How long to wait before the next attempt to connect: doubling, with jitter, bounded."""

    def __init__(self, rng: Random, first_ms: int, last_ms: int) -> None:
        self._rng = rng
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._attempts = 0

    def next_ms(self) -> int:
        """Between half of the delay and all of it, so that clients do not come back together."""
        bound_ms = min(self._last_ms, self._first_ms << min(self._attempts, 30))
        self._attempts += 1
        return self._rng.randint(bound_ms // 2, bound_ms)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._attempts = 0
