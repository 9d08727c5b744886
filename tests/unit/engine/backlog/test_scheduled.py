"""Scheduled messages: by due time, then in order of arrival."""

from leveret.engine.backlog.scheduled import Scheduled
from leveret.engine.message import Message
from tests.unit.engine.messages import message


def seqs(found: list[Message]) -> list[int]:
    return [int(one.seq) for one in found]


def due(scheduled: Scheduled, now_ms: int) -> list[int]:
    taken: list[Message] = []
    while (found := scheduled.pop_due(now_ms)) is not None:
        taken.append(found)
    return seqs(taken)


def test_messages_are_taken_when_due_and_not_before() -> None:
    scheduled = Scheduled()
    for seq, due_ms in enumerate((30, 10, 20)):
        scheduled.add(message(seq), due_ms)
    assert scheduled.next_due_ms() == 10
    assert due(scheduled, 9) == []
    assert due(scheduled, 20) == [1, 2]
    assert scheduled.next_due_ms() == 30
    assert due(scheduled, 30) == [0]
    assert scheduled.next_due_ms() == 0


def test_messages_with_the_same_due_time_are_taken_in_order_of_arrival() -> None:
    scheduled = Scheduled()
    for seq in (5, 3, 4):
        scheduled.add(message(seq), 10)
    assert due(scheduled, 10) == [5, 3, 4]


def test_listing_and_clearing() -> None:
    scheduled = Scheduled()
    scheduled.add(message(0, body=b"abc"), 20)
    scheduled.add(message(1, body=b"de"), 10)
    assert (len(scheduled), scheduled.body_bytes) == (2, 5)
    assert [(due_ms, int(found.seq)) for due_ms, found in scheduled.entries()] == [(10, 1), (20, 0)]
    assert len(scheduled.clear()) == 2
    assert (len(scheduled), scheduled.body_bytes, scheduled.next_due_ms()) == (0, 0, 0)
