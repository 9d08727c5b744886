"""Decide when to try again: messages (`RetryPolicy`) and connections (`Backoff`).

A policy names its delays. Each delay has a queue of its own at the broker, so that a message with a
short delay never waits behind one with a long delay. Therefore the number of delays is bounded.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from leveret.bus.topology import Layout, milliseconds

DELAYS_MAX: Final = 16  # different delays of one policy
RETRIES_MAX: Final = 1_000


@dataclass(frozen=True)
class RetryPolicy:
    """Delays before each retry of a failed message. The last delay is used again and again.

    With `jitter` a message waits longer, at random: up to this share of its delay. Then messages
    that failed together do not come back together.
    """

    retries_max: int
    delays_s: tuple[float, ...]
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.retries_max <= RETRIES_MAX:
            raise ValueError(f"retries_max is from 0 to {RETRIES_MAX}, not {self.retries_max}")
        if not self.delays_s or len(set(self.delays_ms)) > DELAYS_MAX:
            raise ValueError(f"a policy has 1 to {DELAYS_MAX} different delays")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a share from 0 to 1, not {self.jitter}")

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Return the delays as the broker's queue arguments have them."""
        return tuple(milliseconds(delay_s) for delay_s in self.delays_s)

    def delay_s(self, retries: int) -> float:
        """Return how long a message waits that was retried `retries` times before."""
        return self.delays_s[min(retries, len(self.delays_s) - 1)]

    @classmethod
    def of(cls, layout: Layout) -> "RetryPolicy":
        """Return the policy of the layout itself: always the delay of its retry queue."""
        return cls(layout.retries_max, (layout.retry_delay_s,))

    @classmethod
    def exponential(
        cls, retries_max: int, first_s: float, last_s: float, *, jitter: float = 0.0
    ) -> "RetryPolicy":
        """Return a policy whose delays double from `first_s` up to `last_s`."""
        milliseconds(first_s)  # a first delay of 0 would double for ever
        if first_s > last_s:
            raise ValueError(f"first_s is {first_s} and above last_s, which is {last_s}")
        delays_s = [first_s]
        while delays_s[-1] * 2 <= last_s:
            delays_s.append(delays_s[-1] * 2)
        if delays_s[-1] < last_s:
            delays_s.append(last_s)
        return cls(retries_max, tuple(delays_s), jitter)


class Backoff:
    """The pause before the next attempt to connect: it doubles, has jitter, and is bounded."""

    def __init__(self, rng: Random, first_s: float, last_s: float) -> None:
        self._rng = rng
        self._first_s = first_s
        self._last_s = last_s
        self._attempts = 0

    def next_s(self) -> float:
        """Return half to all of the pause, at random, so that clients do not reconnect at once."""
        bound_s = min(self._last_s, self._first_s * 2 ** min(self._attempts, 30))
        self._attempts += 1
        return self._rng.uniform(bound_s / 2, bound_s)

    def reset(self) -> None:
        """Start again from the first pause, after a success."""
        self._attempts = 0
