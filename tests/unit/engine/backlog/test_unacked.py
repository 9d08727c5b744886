"""Unacked messages by delivery tag: finding, taking, gaps, and a message that is never settled."""

import random

from leveret.engine.backlog.unacked import Unacked
from leveret.engine.message import Message
from tests.unit.engine.messages import message, tagged


def filled(count: int) -> Unacked:
    unacked = Unacked()
    for tag in range(1, count + 1):
        unacked.add(tagged(tag))
    return unacked


def tags(found: list[Message]) -> list[int]:
    return [int(one.tag) for one in found]


def test_a_message_is_found_and_taken_once_under_its_tag() -> None:
    unacked = filled(3)
    found = unacked.find(2)
    assert found is not None and unacked.take(2) is found
    assert unacked.take(2) is None and unacked.find(2) is None
    assert unacked.count == 2
    assert tags(unacked.messages()) == [1, 3]


def test_tags_that_were_never_given_are_not_found() -> None:
    unacked = filled(3)
    for tag in (0, 4, -1, 2**63 - 1, -(2**63)):
        assert unacked.find(tag) is None and unacked.take(tag) is None


def test_deliveries_that_need_no_ack_leave_gaps() -> None:
    unacked = Unacked()
    unacked.skip(1)
    unacked.skip(2)
    unacked.add(tagged(3))
    unacked.skip(4)
    unacked.add(tagged(5))
    assert unacked.take(4) is None
    assert tags(unacked.take_through(4)) == [3]
    assert tags(unacked.take_all()) == [5]
    unacked.add(tagged(6))
    assert tags(unacked.messages()) == [6]


def test_taking_through_a_tag_takes_all_before_it_in_order() -> None:
    unacked = filled(6)
    unacked.take(2)
    assert tags(unacked.take_through(4)) == [1, 3, 4]
    assert tags(unacked.take_through(4)) == []
    assert tags(unacked.take_all()) == [5, 6]
    assert unacked.count == 0


def test_message_under_a_tag_can_be_replaced() -> None:
    unacked = filled(2)
    other = message(0)
    unacked.replace(1, other)
    assert unacked.take(1) is other


def test_one_unacked_message_does_not_keep_the_slots_after_it() -> None:
    unacked = filled(1)
    for tag in range(2, 200_000):
        unacked.add(tagged(tag))
        unacked.take(tag)
    assert len(unacked.ring) < 40_000
    assert unacked.count == 1
    assert tags(unacked.take_all()) == [1]


def test_one_unacked_message_does_not_keep_the_slots_of_no_ack_deliveries() -> None:
    unacked = filled(1)
    for tag in range(2, 200_000):
        unacked.skip(tag)
    assert len(unacked.ring) < 40_000
    assert tags(unacked.take_all()) == [1]


def test_replaced_message_keeps_its_tag_when_the_list_is_thinned() -> None:
    unacked = filled(2)
    stand_in = message(0)
    unacked.replace(1, stand_in)
    unacked.replace(2, stand_in)
    for tag in range(3, 100_000):
        unacked.add(tagged(tag))
        unacked.take(tag)
    assert unacked.count == 2
    assert unacked.take(2) is stand_in and unacked.take(1) is stand_in
    assert unacked.count == 0


def test_random_use_equals_a_dict(seed: int) -> None:
    chance = random.Random(seed)
    unacked, model = Unacked(), dict[int, Message]()
    for tag in range(1, 60_000):
        if chance.random() < 0.1:
            unacked.skip(tag)
            continue
        model[tag] = tagged(tag)
        unacked.add(model[tag])
        # A few messages are kept for long, so that the list is thinned repeatedly.
        for _ in range(2):
            chosen = tag - chance.randrange(60)
            assert unacked.take(chosen) is model.pop(chosen, None), f"seed {seed}"
        if model and chance.random() < 0.0002:
            upto = chance.choice(list(model))
            wanted = [held for held in sorted(model) if held <= upto]
            assert tags(unacked.take_through(upto)) == wanted, f"seed {seed}"
            for held in wanted:
                del model[held]
    assert unacked.count == len(model)
    assert tags(unacked.messages()) == sorted(model), f"seed {seed}"
