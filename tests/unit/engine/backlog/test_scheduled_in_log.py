"""Scheduled messages in the log: the same order as a sorted list, for any order of arrival."""

from random import Random

import pytest

from leveret.engine.backlog import scheduled_in_log as module
from leveret.engine.backlog.scheduled_in_log import CHUNK_MESSAGES, ScheduledEntry, ScheduledInLog
from leveret.journal.records import OFFSET_BITS


def entry(due_ms: int, serial: int, file: int = 1) -> ScheduledEntry:
    return (due_ms, serial, serial + 7, file << OFFSET_BITS | serial, serial % 50)


def add(in_log: ScheduledInLog, one: ScheduledEntry) -> None:
    due_ms, serial, seq, position, size = one
    in_log.add(due_ms, serial, seq, position, size)


@pytest.mark.parametrize("spread_ms", [1, 40, 10**9])
def test_order_is_that_of_a_sorted_list(seed: int, spread_ms: int) -> None:
    print(f"seed {seed}, due within {spread_ms} ms")
    rng = Random(f"{seed} {spread_ms}")
    in_log = ScheduledInLog()
    model: list[ScheduledEntry] = []
    serial = 0
    while serial < 3 * CHUNK_MESSAGES:
        for _ in range(rng.randrange(3000)):
            serial += 1
            one = entry(10**12 + rng.randrange(spread_ms), serial)
            add(in_log, one)
            model.append(one)
        model.sort()
        for _ in range(rng.randrange(4)):
            if model:
                assert in_log.next() == model[0][:2]
                taken = in_log.take(rng.randrange(1, 700), 10_000)
                assert taken == model[: len(taken)]
                assert taken
                del model[: len(taken)]
        assert in_log.count == len(model)
    assert in_log.entries() == model
    while model:
        taken = in_log.take(1000, 1 << 40)
        assert taken == model[: len(taken)]
        del model[: len(taken)]
    assert in_log.count == 0


def test_short_delays_between_long_ones_do_not_leave_many_chunks() -> None:
    in_log = ScheduledInLog()
    for serial in range(1, 3001):
        add(in_log, entry(serial if serial % 2 else 10**9 + serial, serial))
        if serial % 2:
            assert [one[1] for one in in_log.take(1, 1 << 40)] == [serial]
    assert in_log.count == 1500
    assert len(in_log._chunks) <= 12


def test_messages_of_a_file_are_found_and_moved(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    in_log = ScheduledInLog()
    count = module.CHUNK_MESSAGES + 1000
    for serial in range(1, count + 1):
        add(in_log, entry(rng.randrange(10**6), serial, file=serial % 3))
    in_log.take(100, 1 << 40)
    before = [one[:3] for one in in_log.entries()]
    in_one = in_log.counts()[1]
    moved = 0
    while positions := in_log.find(1, 1000):
        assert len(positions) <= 1000
        for found in positions:
            moved += 1
            found.move(5 << OFFSET_BITS | moved)
    assert moved == in_one
    assert [one[:3] for one in in_log.entries()] == before
    assert in_log.counts()[5] == in_one
    assert 1 not in in_log.counts()
