"""Times of arrival by sequence number: about right, and few."""

from leveret.engine.arrivals import MARKS_MAX, STEP_MS, UNKNOWN, Arrivals


def test_a_message_came_with_the_last_mark_before_it() -> None:
    arrivals = Arrivals()
    arrivals.note(10, 5_000)  # 0 to 9
    arrivals.note(12, 5_400)  # too soon for a mark of its own
    arrivals.note(13, 65_000)  # after a minute of silence
    arrivals.note(20, 65_100)
    assert [arrivals.time_of(seq) for seq in (0, 9, 11)] == [5_000] * 3
    assert [arrivals.time_of(seq) for seq in (12, 19)] == [65_000] * 2


def test_what_nobody_noted_is_not_known() -> None:
    arrivals = Arrivals()
    assert arrivals.time_of(0) == UNKNOWN
    arrivals.next_seq = 100  # as after a start
    arrivals.note(101, 9_000)
    assert arrivals.time_of(99) == UNKNOWN
    assert arrivals.time_of(100) == 9_000
    assert arrivals.time_of(101) == UNKNOWN


def test_marks_are_few_and_young_ones_close_together() -> None:
    arrivals = Arrivals()
    for second in range(100_000):
        arrivals.note(second + 1, (second + 1) * STEP_MS)
    assert len(arrivals._seqs) <= MARKS_MAX
    for age in (0, 10, 100):
        seq = 99_999 - age
        assert arrivals.time_of(seq) == (seq + 1) * STEP_MS
    early = arrivals.time_of(90_000)
    assert 0 < early <= 90_001 * STEP_MS
