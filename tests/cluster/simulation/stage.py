"""The world as a node sees it: time, random numbers, the network, and the checker.

`World` is the only stage of the simulator; this class keeps the other parts independent of it.
"""

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from tests.cluster.simulation.checks import Checker
from tests.cluster.simulation.schedule import Schedule

NOTES_KEPT = 60


class Stage:
    """Time and events; subclasses say where messages go."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        self.rng = random.Random(seed)
        self.schedule = schedule
        self.checker = Checker()
        self.now = 0
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.is_loud = False
        self.is_calm = False  # after healing: disks are quick, nobody begins anything new
        self.steps = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time; what is due at the same time is done in the order of calls."""
        self._count += 1
        heappush(self._events, (max(time, self.now), self._count, action, arguments))

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay, action, *arguments)

    def run_until(self, time: int) -> None:
        while self._events and self._events[0][0] <= time:
            self.now, _, action, arguments = heappop(self._events)
            self.steps += 1
            action(*arguments)
        self.now = time

    def note(self, text: str) -> None:
        line = f"{self.now:6} {text}"
        self.notes.append(line)
        if self.is_loud:
            print(line)

    def sync_delay(self) -> int:
        return 1 if self.is_calm else self.rng.randint(1, self.schedule.sync_max)

    def transmit(self, source: int, target: int, frame: bytes) -> None:
        raise NotImplementedError

    def begin_copy(self, source: int, term: int, target: int) -> None:
        """A leader copies its directory to a follower."""
        raise NotImplementedError
