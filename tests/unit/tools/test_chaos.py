"""The accounts of the chaos tool: each thing that can go wrong is told, and nothing else."""

from random import Random

import pytest

from tools.chaos.accounts import CLOCKS_MS, Account, Sender, summary
from tools.chaos.bodies import Label, decode_body, encode_body

NOW_MS = 1_000_000


def account(
    confirmed: int = 3, sent: int = 5, *, is_direct: bool = True, keeps_place: bool = True
) -> Account:
    """A queue that one sender has sent messages to, some of them confirmed."""
    sender = Sender(1)
    sender.sent = {(1, number) for number in range(1, sent + 1)}
    sender.confirmed = {(1, number) for number in range(1, confirmed + 1)}
    return Account("q", [sender], is_direct=is_direct, keeps_place=keeps_place)


def deliver(queue: Account, *numbers: int, redelivered: bool = False, lane: int = 0) -> None:
    for number in numbers:
        label = Label(1, number, lane)
        queue.on_delivery(label, redelivered=redelivered, now_ms=NOW_MS)


def test_all_is_well_where_everything_confirmed_came_in_order() -> None:
    for last in (3, 4, 5):  # what was not confirmed may be there or not
        queue = account()
        deliver(queue, *range(1, last + 1))
        assert queue.faults() == []
        assert queue.balance() == 0
        assert len(queue.turned_up()) == last - 3


def test_confirmed_message_that_never_came_is_lost() -> None:
    queue = account()
    deliver(queue, 1, 3)
    assert queue.lost() == {(1, 2)}
    assert queue.balance() == 1
    assert len(queue.faults()) == 2


def test_message_that_nobody_sent_is_invented() -> None:
    queue = account()
    deliver(queue, 1, 2, 3, 6)
    assert queue.invented() == {(1, 6)}
    assert queue.balance() == -1


def test_one_lost_and_one_invented_do_not_make_up_for_each_other() -> None:
    queue = account()
    deliver(queue, 1, 2, 6)
    assert queue.balance() == 0
    assert len(queue.faults()) == 2


def test_order_is_that_of_each_lane() -> None:
    queue = account()
    deliver(queue, 1, 3, lane=1)
    deliver(queue, 2, lane=2)
    assert queue.faults() == []
    deliver(queue, 2, lane=1, redelivered=True)
    assert len(queue.faults()) == 1


def test_new_session_starts_from_the_head() -> None:
    queue = account()
    deliver(queue, 1, 2, 3)
    queue.begin_session()
    deliver(queue, 1, 2, 3, redelivered=True)
    assert queue.faults() == []


def test_message_that_comes_again_must_say_so() -> None:
    queue = account()
    deliver(queue, 1, 2, 3)
    queue.begin_session()
    deliver(queue, 2)
    assert queue.noted[0] == "q: delivered (1, 2) again without saying so"


def test_order_of_what_came_back_is_free_where_it_is_served_first() -> None:
    queue = account(keeps_place=False)
    deliver(queue, 1, 2, 3)
    deliver(queue, 2, 1, redelivered=True)
    assert queue.faults() == []
    deliver(queue, 2)
    assert queue.faults() != []


def test_message_that_was_settled_for_good_must_not_come_again() -> None:
    for is_direct in (True, False):
        queue = account(is_direct=is_direct)
        deliver(queue, 1, 2, 3)
        queue.settled.add((1, 2))
        queue.begin_session()
        deliver(queue, 2, redelivered=True)
        assert queue.faults() == ["q: delivered (1, 2) again, whose ack was on disk"]


def test_message_must_not_come_before_its_time() -> None:
    queue = account()
    for number, due_ms in ((1, NOW_MS), (2, NOW_MS + CLOCKS_MS + 1), (3, 0)):
        label = Label(1, number, 0, due_ms)
        queue.on_delivery(label, redelivered=False, now_ms=NOW_MS)
    assert queue.faults() == ["q: delivered (1, 2) 51 ms too early"]


def test_body_says_what_it_is_and_whether_it_is_whole() -> None:
    rng = Random(1)
    for number in range(100):
        label = Label(7, number, 3, NOW_MS)
        body = encode_body(label, rng)
        assert decode_body(body) == label
        assert decode_body(body + b"x") is None
    queue = account(0)
    queue.on_delivery(None, redelivered=False, now_ms=NOW_MS)
    assert queue.faults() == ["q: delivered a body that nobody sent"]


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (3, 3), (20, 20), (21, 21), (500, 21)])
def test_summary_is_short(count: int, lines: int) -> None:
    assert len(summary([f"q: fault {number}" for number in range(count)])) == lines
