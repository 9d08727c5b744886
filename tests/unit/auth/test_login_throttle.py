"""Login throttling: which logins must wait, and for how long."""

from leveret.auth.login_throttle import (
    ADDRESS_FACTOR,
    RECORDS_MAX,
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    WINDOW_MS,
    LoginThrottle,
)

NOW_MS = 1_700_000_000_000
FREE = 3


def failing(throttle: LoginThrottle, times: int, host: str = "10.0.0.1", user: str = "a") -> None:
    for _ in range(times):
        throttle.failed(host, user, NOW_MS)


def test_first_failures_are_free_and_further_ones_double_the_wait() -> None:
    throttle = LoginThrottle(FREE)
    failing(throttle, FREE)
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS) == 0
    failing(throttle, 1)
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS) == WAIT_MS_MIN
    failing(throttle, 1)
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS) == 2 * WAIT_MS_MIN
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS + 2 * WAIT_MS_MIN) == 0
    failing(throttle, 100)
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS) == WAIT_MS_MAX


def test_another_address_and_another_user_need_not_wait() -> None:
    throttle = LoginThrottle(FREE)
    failing(throttle, FREE + 5)
    assert throttle.wait_ms("10.0.0.2", "a", NOW_MS) == 0
    assert throttle.wait_ms("10.0.0.1", "b", NOW_MS) == 0


def test_address_that_goes_through_many_users_must_wait_with_all() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(FREE * ADDRESS_FACTOR + 1):
        throttle.failed("10.0.0.1", f"user{number}", NOW_MS)
    assert throttle.wait_ms("10.0.0.1", "new", NOW_MS) == WAIT_MS_MIN
    assert throttle.wait_ms("10.0.0.2", "new", NOW_MS) == 0


def test_success_and_time_forget_failures() -> None:
    throttle = LoginThrottle(FREE)
    failing(throttle, FREE + 1)
    throttle.succeeded("10.0.0.1", "a")
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS) == 0
    failing(throttle, FREE)
    throttle.failed("10.0.0.1", "a", NOW_MS + WINDOW_MS + 1)
    assert throttle.wait_ms("10.0.0.1", "a", NOW_MS + WINDOW_MS + 1) == 0


def test_network_of_an_ipv6_address_counts_as_one() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(FREE + 1):
        throttle.failed(f"2001:db8:1:2::{number:x}", "a", NOW_MS)
    assert throttle.wait_ms("2001:db8:1:2:ffff::1", "a", NOW_MS) > 0
    assert throttle.wait_ms("2001:db8:1:3::1", "a", NOW_MS) == 0
    failing(throttle, FREE + 1, "::ffff:10.0.0.9")
    assert throttle.wait_ms("10.0.0.9", "a", NOW_MS) > 0


def test_wait_is_reported_once() -> None:
    throttle = LoginThrottle(FREE)
    failing(throttle, FREE)
    assert not throttle.is_first_report("10.0.0.1", "a")
    failing(throttle, 1)
    assert throttle.is_first_report("10.0.0.1", "a")
    assert not throttle.is_first_report("10.0.0.1", "a")


def test_memory_is_bounded_and_zero_turns_it_off() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(RECORDS_MAX):
        throttle.failed(f"10.1.{number >> 8}.{number & 255}", "a", NOW_MS)
    assert len(throttle._records) <= RECORDS_MAX
    off = LoginThrottle(0)
    failing(off, 1000)
    assert off.wait_ms("10.0.0.1", "a", NOW_MS) == 0
