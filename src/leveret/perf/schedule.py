"""Time and load: when the next message is due, and which size holds now. Pure; time is given.

A `Pace` spreads messages evenly over a phase of its schedule. A sender that falls behind catches up
within the phase: that is what a rate means. A phase that is over takes its debt with it.
"""

from typing import Final

from leveret.perf.load import Schedule

ENDLESS: Final = 1e9


class Phases:
    """Which value of a schedule holds at a time."""

    def __init__(self, schedule: Schedule, start_s: float) -> None:
        self._schedule = schedule
        self._index = 0
        self.end_s = start_s + schedule[0][1]

    @property
    def value(self) -> int:
        return self._schedule[self._index][0]

    def move(self, now_s: float) -> bool:
        """Go on to the phase of this time; whether it is another one."""
        moved = False
        while now_s >= self.end_s:
            self._index = (self._index + 1) % len(self._schedule)
            self.end_s += self._schedule[self._index][1]
            moved = True
        return moved


class Pace:
    """When a sender may send on."""

    def __init__(self, schedule: Schedule, share: float, start_s: float) -> None:
        """`share` of the schedule's rates is for this sender."""
        self._phases = Phases(schedule, start_s)
        self._share = share
        self._from_s = start_s
        self._from_sent = 0

    def wait_s(self, sent: int, now_s: float) -> float:
        """How long to wait before message number `sent` goes out."""
        phases = self._phases
        if phases.move(now_s):
            self._from_s = now_s
            self._from_sent = sent
        rate = phases.value * self._share
        if rate <= 0:
            return phases.end_s - now_s
        due_s = self._from_s + (sent - self._from_sent) / rate
        return max(0.0, min(due_s, phases.end_s) - now_s)


def pace(rate: int, schedule: Schedule, workers: int, start_s: float) -> Pace | None:
    """The pace of one of so many workers; None where there is no limit."""
    if schedule:
        return Pace(schedule, 1 / workers, start_s)
    if rate:
        return Pace(((rate, ENDLESS),), 1 / workers, start_s)
    return None
