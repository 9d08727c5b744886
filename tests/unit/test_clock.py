"""The clock tells wall time and never goes backwards."""

import time

from leveret.clock import Clock


def test_clock_tells_the_wall_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    now_ms = Clock().now_ms()
    after_ms = time.time_ns() // 1_000_000
    assert before_ms - 1 <= now_ms <= after_ms + 1


def test_clock_never_goes_backwards() -> None:
    clock = Clock()
    answers = [clock.now_ms() for _ in range(10_000)]
    assert answers == sorted(answers)
