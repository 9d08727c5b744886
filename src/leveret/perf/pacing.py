"""Rates and sizes over time: when the next message is due, and which size applies now.

The caller passes the time; this module reads no clock. A `Pace` spreads messages evenly over a
phase of its schedule. A sender that falls behind catches up within the phase. At the end of a
phase, the missing messages are forgotten.
"""

from typing import Final

from leveret.perf.load import Schedule

ENDLESS_S: Final = 1e9


class Phases:
    """Finds the value of a schedule that applies at a time."""

    def __init__(self, schedule: Schedule, start_s: float) -> None:
        self._schedule = schedule
        self._index = 0
        self.end_s = start_s + schedule[0][1]

    @property
    def value(self) -> int:
        return self._schedule[self._index][0]

    def move(self, now_s: float) -> bool:
        """Move to the phase of this time. Return True if it is a new one."""
        moved = False
        while now_s >= self.end_s:
            self._index = (self._index + 1) % len(self._schedule)
            self.end_s += self._schedule[self._index][1]
            moved = True
        return moved


class Pace:
    """Decides when a sender may send its next message."""

    def __init__(self, schedule: Schedule, share: float, start_s: float) -> None:
        """Use this `share` (0 to 1) of the scheduled rates."""
        self._phases = Phases(schedule, start_s)
        self._share = share
        self._from_s = start_s
        self._from_sent = 0

    def wait_s(self, sent: int, now_s: float) -> float:
        """Return the seconds to wait before sending, when `sent` messages are sent already."""
        phases = self._phases
        if phases.move(now_s):
            self._from_s = now_s
            self._from_sent = sent
        rate = phases.value * self._share
        if rate <= 0:
            return phases.end_s - now_s
        due_s = self._from_s + (sent - self._from_sent) / rate
        return max(0.0, min(due_s, phases.end_s) - now_s)


def make_pace(rate: int, schedule: Schedule, workers: int, start_s: float) -> Pace | None:
    """Return the pace of one of `workers` workers, or None if there is no limit."""
    if schedule:
        return Pace(schedule, 1 / workers, start_s)
    if rate:
        return Pace(((rate, ENDLESS_S),), 1 / workers, start_s)
    return None
