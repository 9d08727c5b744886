"""Scheduled messages as columns: the same order as a sorted list, whatever comes when."""

from random import Random

import pytest

from leveret.engine.backlog import scheduled_in_log as module
from leveret.engine.backlog.scheduled_in_log import CHUNK_MESSAGES, ScheduledEntry, ScheduledInLog
from leveret.journal.records import OFFSET_BITS


def entry(due_ms: int, serial: int, file: int = 1) -> ScheduledEntry:
    return (due_ms, serial, serial + 7, file << OFFSET_BITS | serial, serial % 50)


def add(distant: ScheduledInLog, one: ScheduledEntry) -> None:
    due_ms, serial, seq, position, size = one
    distant.add(due_ms, serial, seq, position, size)


@pytest.mark.parametrize("spread_ms", [1, 40, 10**9])
def test_order_is_that_of_a_sorted_list(seed: int, spread_ms: int) -> None:
    print(f"seed {seed}, due within {spread_ms} ms")
    rng = Random(f"{seed} {spread_ms}")
    distant = ScheduledInLog()
    model: list[ScheduledEntry] = []
    serial = 0
    while serial < 3 * CHUNK_MESSAGES:
        for _ in range(rng.randrange(3000)):
            serial += 1
            one = entry(10**12 + rng.randrange(spread_ms), serial)
            add(distant, one)
            model.append(one)
        model.sort()
        for _ in range(rng.randrange(4)):
            if model:
                assert distant.next() == model[0][:2]
                taken = distant.take(rng.randrange(1, 700), 10_000)
                assert taken == model[: len(taken)]
                assert taken
                del model[: len(taken)]
        assert distant.count == len(model)
    assert distant.entries() == model
    while model:
        taken = distant.take(1000, 1 << 40)
        assert taken == model[: len(taken)]
        del model[: len(taken)]
    assert distant.count == 0


def test_short_delays_between_long_ones_do_not_leave_many_chunks() -> None:
    distant = ScheduledInLog()
    for serial in range(1, 3001):
        add(distant, entry(serial if serial % 2 else 10**9 + serial, serial))
        if serial % 2:
            assert [one[1] for one in distant.take(1, 1 << 40)] == [serial]
    assert distant.count == 1500
    assert len(distant._chunks) <= 12


def test_messages_of_a_file_are_found_and_moved(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    distant = ScheduledInLog()
    count = module.CHUNK_MESSAGES + 1000
    for serial in range(1, count + 1):
        add(distant, entry(rng.randrange(10**6), serial, file=serial % 3))
    distant.take(100, 1 << 40)
    before = [one[:3] for one in distant.entries()]
    in_one = distant.counts()[1]
    moved = 0
    while spots := distant.find(1, 1000):
        assert len(spots) <= 1000
        for spot in spots:
            moved += 1
            spot.move(5 << OFFSET_BITS | moved)
    assert moved == in_one
    assert [one[:3] for one in distant.entries()] == before
    assert distant.counts()[5] == in_one
    assert 1 not in distant.counts()
