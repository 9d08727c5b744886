"""A step of the machine's time is one line of the log, with what it does to messages."""

import logging

import pytest

from leveret.clock import Clock
from leveret.runtime.clock_watch import LOOK_S, STEP_MS, ClockWatch

STEP_S = STEP_MS / 1000
HOUR_S = 3600


class Machine:
    """A machine whose time a test sets."""

    def __init__(self) -> None:
        self.wall_s = 1_700_000_000.0
        self.monotonic_s = 1000.0
        self.watch = ClockWatch(
            Clock(lambda: int(self.wall_s * 1e9), lambda: int(self.monotonic_s * 1e9))
        )

    def look(self, step_s: float = 0) -> None:
        """Let time pass, set the time, and look."""
        self.wall_s += LOOK_S + step_s
        self.monotonic_s += LOOK_S
        self.watch.look()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call."""
    found = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


def test_a_step_forwards_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.look()
    assert lines(caplog) == []
    machine.look(3 * HOUR_S)
    (line,) = lines(caplog)
    assert line.startswith("the machine's time went forwards by 3 h,")
    assert "expire now" in line
    machine.look()
    assert lines(caplog) == []


def test_a_step_back_is_told_once_and_its_correction_too(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.look(-3 * HOUR_S)
    (line,) = lines(caplog)
    assert line.startswith("the machine's time was set back by 3 h:")
    assert "half speed" in line
    machine.look()
    assert lines(caplog) == []
    machine.look(3 * HOUR_S)
    assert len(lines(caplog)) == 1


def test_small_corrections_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    for _ in range(10):
        machine.look(STEP_S / 2)
        machine.look(-STEP_S / 2)
    assert lines(caplog) == []
