"""Fair lines: the keys of one priority take turns."""

import random

from leveret.engine.backlog.fair_lines import fair_key
from leveret.engine.backlog.ready import Ready
from leveret.engine.message import NO_ADDRESS, Message
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import table_of


def message(seq: int, key: str | None, priority: int = 0) -> Message:
    properties = Properties()
    if key is not None:
        properties.headers = table_of({"x-other": 1, "x-job-fair-key": key})
    return Message(NO_ADDRESS, encode_header(properties, 0), b"", seq, 0, priority, 0, 0)


def ready_of(*messages: Message) -> Ready:
    ready = Ready(prioritised=True, returns_first=False)
    ready.open_fair_lines()
    for one in messages:
        ready.push(one)
    return ready


def drained(ready: Ready) -> list[int]:
    return [ready.pop().seq for _ in range(int(ready.count))]


def test_keys_take_turns() -> None:
    ready = ready_of(*[message(n, "a") for n in range(4)], message(4, "b"), message(5, "c"))
    assert drained(ready) == [0, 4, 5, 1, 2, 3]


def test_messages_without_a_key_take_turns_too() -> None:
    ready = ready_of(*[message(n, "a") for n in range(3)], message(3, None), message(4, None))
    assert drained(ready) == [0, 3, 1, 4, 2]
    ready = ready_of(*[message(n, "a") for n in range(50)], message(50, None))
    assert 50 in [ready.pop().seq for _ in range(2)]


def test_higher_priorities_come_first_whatever_their_keys() -> None:
    ready = ready_of(message(0, "a", 1), message(1, "a", 5), message(2, "b", 5), message(3, "b", 1))
    assert drained(ready) == [1, 2, 0, 3]


def test_messages_from_before_the_fair_lines_share_one_line() -> None:
    ready = Ready(prioritised=True, returns_first=False)
    for n in range(3):
        ready.push(message(n, "a"))
    ready.open_fair_lines()
    ready.push(message(3, "b"))
    order = drained(ready)
    assert order.index(3) <= 1
    assert [seq for seq in order if seq != 3] == [0, 1, 2]


def test_returned_message_keeps_its_place_in_its_fair_line() -> None:
    ready = ready_of(message(0, "a"), message(1, "a"), message(2, "b"))
    first = ready.pop()
    ready.put_back(first)
    order = drained(ready)
    assert order.index(0) < order.index(1)


def test_reading_the_head_does_not_use_up_a_turn() -> None:
    ready = ready_of(message(0, "a"), message(1, "b"))
    assert ready.head().seq == ready.head().seq == ready.pop().seq


def test_empty_fair_lines_are_dropped() -> None:
    ready = ready_of(*[message(n, f"key {n}") for n in range(1000)])
    drained(ready)
    ready.push(message(1000, "new"))
    ready.pop()
    assert ready.fair_lines is not None
    assert len(ready.fair_lines.at(0)) <= 1


def test_random_traffic_is_shared_within_one_turn_of_each_key(seed: int) -> None:
    """Between two messages of a waiting key, at most one message of each other key is served."""
    chance = random.Random(seed)
    ready = ready_of()
    waiting: dict[str, list[int]] = {}
    passed: dict[str, dict[str, int]] = {}
    seq = 0
    for _ in range(5000):
        if chance.random() < 0.55 or not waiting:
            key = chance.choice("aaaaaabbcde")
            ready.push(message(seq, key))
            waiting.setdefault(key, []).append(seq)
            passed.setdefault(key, {})
            seq += 1
            continue
        got = ready.pop()
        served = fair_key(got.header).decode()
        assert waiting[served].pop(0) == got.seq, f"seed {seed}"
        passed[served] = {}
        for other, counts in passed.items():
            if other != served and waiting.get(other):
                counts[served] = counts.get(served, 0) + 1
                assert counts[served] <= 1, f"{other} waits, {served} twice; seed {seed}"
        if not waiting[served]:
            del waiting[served], passed[served]
    assert ready.count == sum(map(len, waiting.values()))
    assert sorted(drained(ready)) == sorted(seq for seqs in waiting.values() for seq in seqs)
