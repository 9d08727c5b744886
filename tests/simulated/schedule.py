"""The time of a simulated world, and the events to come.

Time stands still while an event runs, and jumps to the next one. Events at the same time run in the
order in which they were added. So a run depends on nothing but its seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Final

EVENTS_MAX: Final = 20_000_000  # a run with more events than this goes in circles


class Event:
    """A callback at a point in time; `cancel` takes it back."""

    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Schedule:
    """The clock of the world, its events and its randomness."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_s = 0.0
        self.events_run = 0
        self.faults: list[str] = []  # errors that reached an event loop: they end the run
        self.at_end: list[Callable[[], None]] = []  # called when the run is over
        self._order = 0
        self._events: list[tuple[float, int, Event]] = []  # a heap: time, order, event

    def after(self, delay_s: float, callback: Callable[[], None]) -> Event:
        """Run a callback after a delay."""
        return self.at(self.now_s + max(0.0, delay_s), callback)

    def at(self, time_s: float, callback: Callable[[], None]) -> Event:
        """Run a callback at a time; a time in the past means now."""
        self._order += 1
        event = Event(callback)
        heapq.heappush(self._events, (max(time_s, self.now_s), self._order, event))
        return event

    def step(self) -> bool:
        """Run the next event; return False if there is none."""
        while self._events:
            time_s, _, event = heapq.heappop(self._events)
            if event.is_cancelled:
                continue
            self.now_s = time_s
            self.events_run += 1
            assert self.events_run < EVENTS_MAX, f"seed {self.seed}: too many events"
            event.callback()
            assert not self.faults, f"seed {self.seed}: {self.faults}"
            return True
        return False

    def __enter__(self) -> Schedule:
        return self

    def __exit__(self, *error: object) -> None:
        """End the run: nothing of it runs any more."""
        for end in self.at_end:
            end()

    def run_until(self, is_done: Callable[[], bool], within_s: float) -> None:
        """Run events until a condition holds; fail if it does not within this simulated time."""
        end_s = self.now_s + within_s
        while not is_done():
            assert self._events, f"seed {self.seed}: nothing happens any more"
            assert self.now_s <= end_s, f"seed {self.seed}: not within {within_s} s"
            self.step()

    def run_for(self, time_s: float) -> None:
        """Run all events of the next seconds."""
        end_s = self.now_s + time_s
        while self._events and self._events[0][0] <= end_s:
            self.step()
        self.now_s = max(self.now_s, end_s)
