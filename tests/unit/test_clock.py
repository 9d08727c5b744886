"""The clock tells wall time, follows its corrections, and never goes backwards."""

import time

from leveret.clock import Clock

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


class Machine:
    """A machine whose time can be set."""

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000 * SECOND
        self.monotonic_ns = 5 * SECOND
        self.clock = Clock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def pass_time(self, ns: int) -> None:
        self.wall_ns += ns
        self.monotonic_ns += ns

    def set_time(self, by_ns: int) -> None:
        self.wall_ns += by_ns

    def ahead_ms(self) -> int:
        """How far the clock is ahead of the machine's time."""
        return self.clock.now_ms() - self.wall_ns // 1_000_000


def test_clock_tells_the_wall_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    now_ms = Clock().now_ms()
    after_ms = time.time_ns() // 1_000_000
    assert before_ms - 1 <= now_ms <= after_ms + 1


def test_clock_never_goes_backwards() -> None:
    clock = Clock()
    answers = [clock.now_ms() for _ in range(10_000)]
    assert answers == sorted(answers)


def test_clock_follows_a_step_forwards_at_once() -> None:
    machine = Machine()
    machine.pass_time(SECOND)
    assert machine.ahead_ms() == 0
    machine.set_time(2 * HOUR)
    assert machine.ahead_ms() == 0


def test_clock_runs_at_half_speed_after_a_step_back() -> None:
    machine = Machine()
    machine.set_time(-HOUR)
    first_ms = machine.clock.now_ms()
    assert machine.ahead_ms() == 3_600_000  # it has not gone back
    machine.pass_time(HOUR)
    assert machine.clock.now_ms() - first_ms == 1_800_000  # and does not stand still
    machine.pass_time(HOUR)
    assert machine.ahead_ms() == 0
    machine.pass_time(HOUR)
    assert machine.ahead_ms() == 0


def test_clock_is_right_again_however_often_it_is_read() -> None:
    machine = Machine()
    machine.set_time(-SECOND)
    before_ms = machine.clock.now_ms()
    for _ in range(2_000):
        machine.pass_time(1_000_003)
        now_ms = machine.clock.now_ms()
        assert now_ms >= before_ms
        before_ms = now_ms
    assert machine.ahead_ms() == 0


def test_clock_says_how_far_it_is_ahead() -> None:
    machine = Machine()
    machine.set_time(-HOUR)
    assert machine.clock.ahead_ms() == 3_600_000
    machine.pass_time(HOUR)
    assert machine.clock.ahead_ms() == 1_800_000
    machine.pass_time(2 * HOUR)
    assert machine.clock.ahead_ms() == 0


def test_a_step_forwards_ends_a_step_back() -> None:
    machine = Machine()
    machine.set_time(-HOUR)
    machine.clock.now_ms()
    machine.set_time(HOUR)
    assert machine.ahead_ms() == 0


def test_clock_shows_no_less_than_it_was_raised_to() -> None:
    machine = Machine()
    machine.clock.raise_to(machine.clock.now_ms() + 1_000)
    assert machine.ahead_ms() == 1_000
    machine.clock.raise_to(1)
    assert machine.ahead_ms() == 1_000
    machine.pass_time(2 * SECOND)
    assert machine.ahead_ms() == 0
