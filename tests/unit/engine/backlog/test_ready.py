"""Ready messages: the order of delivery, returned messages, and expiry at the head."""

import random

from leveret.engine.backlog.page_reader import PageReader, QueuePageReader
from leveret.engine.backlog.ready import Ready
from tests.unit.engine.messages import message


def plain() -> Ready:
    return Ready(prioritised=False, returns_first=False)


def prioritised() -> Ready:
    return Ready(prioritised=True, returns_first=False)


def quorum() -> Ready:
    return Ready(prioritised=True, returns_first=True)


def drain(ready: Ready) -> list[int]:
    return [int(ready.pop().seq) for _ in range(ready.count)]


def test_first_in_is_first_out() -> None:
    ready = plain()
    for seq in range(3):
        ready.push(message(seq))
    assert int(ready.head().seq) == 0
    assert drain(ready) == [0, 1, 2]


def test_returned_message_goes_to_its_original_place() -> None:
    ready = plain()
    for seq in range(4):
        ready.push(message(seq))
    first, second, third = ready.pop(), ready.pop(), ready.pop()
    ready.put_back(third)
    ready.put_back(first)
    assert drain(ready) == [0, 2, 3]
    ready.push(message(4))
    ready.put_back(second)
    assert drain(ready) == [1, 4]


def test_higher_priorities_go_first_and_returned_messages_keep_their_place_in_theirs() -> None:
    ready = prioritised()
    for seq, priority in enumerate((1, 5, 1, 9, 5)):
        ready.push(message(seq, priority=priority))
    high, middle = ready.pop(), ready.pop()
    ready.put_back(middle)
    ready.put_back(high)
    assert drain(ready) == [3, 1, 4, 0, 2]


def test_quorum_queue_serves_returned_messages_first() -> None:
    ready = quorum()
    for seq, priority in enumerate((1, 1, 9)):
        ready.push(message(seq, priority=priority))
    assert int(ready.pop().seq) == 2
    low = ready.pop()
    ready.push(message(3, priority=9))
    ready.put_back(low)
    assert drain(ready) == [0, 3, 1]


def test_counts_follow_every_change() -> None:
    ready = prioritised()
    for seq in range(3):
        ready.push(message(seq, priority=seq, body=b"12345"))
    taken = ready.pop()
    assert (ready.count, ready.body_bytes) == (2, 10)
    ready.put_back(taken)
    assert (ready.count, ready.body_bytes) == (3, 15)
    assert ready.pop_expired(10**9) is None
    assert (ready.count, ready.body_bytes) == (3, 15)


def test_classic_queue_expires_only_its_head() -> None:
    ready = prioritised()
    ready.push(message(0, priority=1, expires_ms=10))
    ready.push(message(1, priority=5))
    assert ready.pop_expired(10) is None
    assert ready.next_expiry_ms() == 0
    ready.pop()
    assert ready.next_expiry_ms() == 10
    assert ready.pop_expired(9) is None
    dead = ready.pop_expired(10)
    assert dead is not None and int(dead.seq) == 0
    assert ready.count == 0
    assert ready.pop_expired(10) is None


def test_quorum_queue_expires_the_head_of_every_line() -> None:
    ready = quorum()
    ready.push(message(0, priority=1, expires_ms=20))
    ready.push(message(1, priority=5))
    ready.push(message(2, priority=9, expires_ms=10))
    assert ready.next_expiry_ms() == 10
    dead = [ready.pop_expired(20), ready.pop_expired(20), ready.pop_expired(20)]
    assert [None if found is None else int(found.seq) for found in dead] == [2, 0, None]
    assert drain(ready) == [1]


def test_a_priority_whose_messages_expired_can_be_used_again() -> None:
    ready = quorum()
    for round_ms in range(10, 1000, 10):
        ready.push(message(round_ms, priority=1, expires_ms=round_ms))
        assert ready.pop_expired(round_ms) is not None
    ready.push(message(5, priority=1))
    ready.push(message(6, priority=2))
    assert drain(ready) == [6, 5]
    assert len(ready.levels) <= 1


def test_long_line_frees_the_slots_of_taken_messages() -> None:
    ready = plain()
    for seq in range(10_000):
        ready.push(message(seq))
    for _ in range(9_000):
        ready.pop()
    assert len(ready.line.fresh) < 4_000


def test_listing_gives_the_order_of_delivery_and_takes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    for make in (plain, prioritised, quorum):
        ready = make()
        taken = []
        for seq in range(300):
            ready.push(message(seq, priority=chance.randrange(5)))
            if chance.random() < 0.5:
                taken.append(ready.pop())
            if taken and chance.random() < 0.4:
                ready.put_back(taken.pop(chance.randrange(len(taken))))
        listed = [int(found.seq) for found in ready.messages()]
        assert len(ready.messages_held()) >= ready.count
        assert drain(ready) == listed, f"seed {seed}"


def test_many_transient_messages_that_come_back_are_sorted_a_few_times() -> None:
    ready = plain()
    ready.pages = QueuePageReader(PageReader(), 0, {}, False)
    ready.window = 16
    count = 10_000
    for seq in range(count):
        ready.push(message(seq))
    taken = [ready.pop() for _ in range(count)]
    sorts = 0
    for returned in taken:
        before = ready.line.returned
        ready.put_back(returned)
        sorts += ready.line.returned is not before
    assert 0 < sorts < 20
    assert drain(ready) == list(range(count))
