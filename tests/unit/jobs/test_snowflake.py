"""Ids rise and are unique, whatever the clock does."""

import random

import pytest

from leveret.job_service.snowflake import (
    EPOCH_MS,
    ID_MAX,
    NODE_MAX,
    SEQUENCE_MAX,
    TIME_MAX,
    Snowflakes,
    first_of,
)

NOW_MS = EPOCH_MS + 200_000_000_000


def test_an_id_has_time_node_and_sequence_in_its_bits() -> None:
    ids = Snowflakes(5)
    first, second = ids.next(NOW_MS), ids.next(NOW_MS)
    assert first == (200_000_000_000 << 22) | (5 << 12)
    assert second == first + 1
    assert first_of(NOW_MS) == 200_000_000_000 << 22


def test_an_id_fits_a_signed_number_of_64_bits() -> None:
    assert Snowflakes(NODE_MAX).next(EPOCH_MS + TIME_MAX) <= ID_MAX


def test_ids_rise_while_the_clock_goes_wherever_it_likes(seed: int) -> None:
    chance = random.Random(seed)
    ids = Snowflakes(1)
    now_ms, made = NOW_MS, []
    for _ in range(50_000):
        now_ms += chance.choice((0, 0, 0, 1, 1, -1, 5000, -5000))
        made.append(ids.next(now_ms))
    assert made == sorted(set(made)), f"seed {seed}"


def test_a_full_millisecond_borrows_from_the_next() -> None:
    ids = Snowflakes(1)
    made = [ids.next(NOW_MS) for _ in range(SEQUENCE_MAX + 2)]
    assert len(set(made)) == len(made)
    assert made[-1] > first_of(NOW_MS + 1) > made[-2]
    assert ids.ahead_ms(NOW_MS) == 1
    assert ids.ahead_ms(NOW_MS + 1) == 0


def test_many_ids_are_those_that_would_be_made_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    one, many = Snowflakes(1), Snowflakes(1)
    now_ms = NOW_MS
    for _ in range(30):
        now_ms += chance.choice((0, 0, 1, 3, -2))
        count = chance.choice((0, 1, 100, SEQUENCE_MAX, SEQUENCE_MAX + 2, 2 * SEQUENCE_MAX + 5))
        assert many.next_many(count, now_ms) == [one.next(now_ms) for _ in range(count)], seed


def test_after_a_restart_ids_lie_beyond_the_floor_although_the_clock_went_back() -> None:
    before = Snowflakes(1)
    last = [before.next(NOW_MS) for _ in range(10)][-1]
    assert Snowflakes(1, before.last_ms).next(NOW_MS - 3_600_000) > last


def test_nodes_never_make_the_same_id() -> None:
    made = [Snowflakes(node).next(NOW_MS) for node in range(NODE_MAX + 1)]
    assert len(set(made)) == NODE_MAX + 1


@pytest.mark.parametrize("node", [-1, NODE_MAX + 1])
def test_a_number_that_is_no_node_is_refused(node: int) -> None:
    with pytest.raises(ValueError, match="between 0 and 1023"):
        Snowflakes(node)
