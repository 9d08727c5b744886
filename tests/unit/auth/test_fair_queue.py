"""The line of password checks: turns of networks, limits, removal."""

import itertools

from leveret.auth.fair_queue import (
    NETWORK_WAITING_MAX,
    WAITING_MAX,
    FairQueue,
    PasswordCheck,
)

_numbers = itertools.count()


def check(network: str, user: str = "u") -> PasswordCheck:
    digest = str(next(_numbers)).encode()
    return PasswordCheck(network, user, digest, lambda: False, lambda _: None)


def filled(queue: FairQueue, network: str, count: int) -> list[PasswordCheck]:
    checks = [check(network) for _ in range(count)]
    assert all(queue.add(one) is None for one in checks)
    return checks


def test_networks_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue()
    flood = filled(queue, "flood", 3)
    (one,) = filled(queue, "one", 1)
    assert [queue.take() for _ in range(5)] == [flood[0], one, flood[1], flood[2], None]


def test_users_of_a_network_take_turns() -> None:
    queue = FairQueue()
    guesses = filled(queue, "n", 3)
    right = check("n", "amy")
    assert queue.add(right) is None
    assert [queue.take() for _ in range(4)] == [guesses[0], right, guesses[1], guesses[2]]


def test_full_network_gives_a_place_to_the_user_with_few() -> None:
    queue = FairQueue()
    guesses = filled(queue, "n", NETWORK_WAITING_MAX)
    assert queue.add(check("n", "amy")) is guesses[-1]
    assert len(queue) == NETWORK_WAITING_MAX
    for number in range(NETWORK_WAITING_MAX - 3):
        assert queue.add(check("n", f"made up {number}")) is not None
    more = check("n", "too many")
    assert queue.add(more) is not more
    last = check("n", "last")
    assert queue.add(last) is last


def test_network_has_a_limit_of_its_own() -> None:
    queue = FairQueue()
    filled(queue, "flood", NETWORK_WAITING_MAX)
    more = check("flood")
    assert queue.add(more) is more
    assert queue.add(check("other")) is None


def test_full_line_gives_a_place_to_the_network_with_few() -> None:
    queue = FairQueue()
    for number in range(WAITING_MAX // NETWORK_WAITING_MAX):
        filled(queue, f"flood{number}", NETWORK_WAITING_MAX)
    newcomer = check("other")
    displaced = queue.add(newcomer)
    assert displaced is not None
    assert displaced.network.startswith("flood")
    assert len(queue) == WAITING_MAX


def test_line_that_is_full_of_equals_refuses() -> None:
    queue = FairQueue()
    for number in range(WAITING_MAX):
        filled(queue, str(number), 1)
    more = check("more")
    assert queue.add(more) is more


def test_removed_check_is_not_taken() -> None:
    queue = FairQueue()
    first, second = filled(queue, "n", 2)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert (queue.take(), queue.take(), len(queue)) == (second, None, 0)
