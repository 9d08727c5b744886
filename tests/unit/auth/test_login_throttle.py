"""Login throttling: which guesses are checked, and which must wait."""

from leveret.auth.login_throttle import (
    RECORDS_MAX,
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    WINDOW_MS,
    LoginThrottle,
)

NOW_MS = 1_700_000_000_000
FREE = 3


def fail(
    throttle: LoginThrottle,
    times: int,
    host: str = "10.0.0.1",
    user: str = "a",
    now_ms: int = NOW_MS,
) -> None:
    for _ in range(times):
        assert throttle.begin(host, user, now_ms) == 0
        throttle.failed(host, user, now_ms)


def may_try(
    throttle: LoginThrottle, host: str = "10.0.0.1", user: str = "a", now_ms: int = NOW_MS
) -> bool:
    wait_ms = throttle.begin(host, user, now_ms)
    if wait_ms == 0:
        throttle.dropped(host, user)
    return wait_ms == 0


def test_first_failures_are_free_and_later_ones_keep_their_places() -> None:
    throttle = LoginThrottle(FREE)
    fail(throttle, FREE)
    fail(throttle, FREE)  # these keep all places, for 1, 2 and 4 seconds
    assert throttle.begin("10.0.0.1", "a", NOW_MS) == WAIT_MS_MIN
    fail(throttle, 1, now_ms=NOW_MS + WAIT_MS_MIN)
    assert not may_try(throttle, now_ms=NOW_MS + WAIT_MS_MIN)
    assert may_try(throttle, now_ms=NOW_MS + 2 * WAIT_MS_MIN)


def test_wait_is_limited() -> None:
    throttle = LoginThrottle(FREE)
    now_ms = NOW_MS
    for _ in range(50):
        fail(throttle, 1, now_ms=now_ms)
        now_ms += WAIT_MS_MAX
    for _ in range(FREE - 1):
        fail(throttle, 1, now_ms=now_ms)
    fail(throttle, 1, now_ms=now_ms)
    assert throttle.begin("10.0.0.1", "a", now_ms) == WAIT_MS_MAX


def test_guesses_that_are_being_checked_have_places() -> None:
    throttle = LoginThrottle(FREE)
    for _ in range(FREE):
        assert throttle.begin("10.0.0.1", "a", NOW_MS) == 0
    assert throttle.begin("10.0.0.1", "a", NOW_MS) == WAIT_MS_MIN
    throttle.dropped("10.0.0.1", "a")
    assert throttle.begin("10.0.0.1", "a", NOW_MS) == 0


def test_another_address_and_another_user_need_not_wait() -> None:
    throttle = LoginThrottle(FREE)
    fail(throttle, 2 * FREE)
    assert not may_try(throttle)
    assert may_try(throttle, "10.0.0.2", "a")
    assert may_try(throttle, "10.0.0.1", "b")


def test_address_that_fails_with_many_users_does_not_lock_out_others() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(1_000):
        fail(throttle, 1, user=f"user{number}")
    assert may_try(throttle, user="amy")


def test_success_and_time_forget_failures() -> None:
    throttle = LoginThrottle(FREE)
    fail(throttle, 2 * FREE - 1)
    assert throttle.begin("10.0.0.1", "a", NOW_MS) == 0
    throttle.succeeded("10.0.0.1", "a")
    fail(throttle, 2 * FREE)
    assert not may_try(throttle)
    fail(throttle, FREE, now_ms=NOW_MS + WINDOW_MS + 1)
    assert may_try(throttle, now_ms=NOW_MS + WINDOW_MS + 1)


def test_network_of_an_ipv6_address_counts_as_one() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(2 * FREE):
        fail(throttle, 1, f"2001:db8:1:2::{number:x}")
    assert not may_try(throttle, "2001:db8:1:2:ffff::1")
    assert may_try(throttle, "2001:db8:1:3::1")
    fail(throttle, 2 * FREE, "::ffff:10.0.0.9")
    assert not may_try(throttle, "10.0.0.9")


def test_wait_is_reported_once() -> None:
    throttle = LoginThrottle(FREE)
    assert not throttle.is_first_report("10.0.0.1", "a")
    fail(throttle, 1)
    assert throttle.is_first_report("10.0.0.1", "a")
    assert not throttle.is_first_report("10.0.0.1", "a")


def test_memory_is_bounded_and_zero_turns_it_off() -> None:
    throttle = LoginThrottle(FREE)
    for number in range(RECORDS_MAX + 1):
        fail(throttle, 1, f"10.1.{number >> 8}.{number & 255}")
    assert len(throttle._records) <= RECORDS_MAX
    off = LoginThrottle(0)
    fail(off, 1000)
    assert may_try(off)
