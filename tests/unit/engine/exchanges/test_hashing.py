"""Stable hashes of text. The values are fixed: a change would move keys between queues."""

import random

from leveret.engine.exchanges.hashing import fraction, mix, stable_hash


def test_numbers_never_change() -> None:
    assert stable_hash("") == 0
    assert stable_hash("leveret") == 0xEBBEE3A1
    assert [mix(number) for number in (0, 1, 2, 0xFFFFFFFF)] == [
        0,
        824515495,
        1722258072,
        539527247,
    ]


def test_text_that_is_not_unicode_has_a_hash() -> None:
    assert stable_hash("\udcff") != stable_hash("\udcfe")


def test_mixed_numbers_have_32_bits_and_do_not_collide(seed: int) -> None:
    rng = random.Random(seed)
    numbers = {rng.getrandbits(32) for _ in range(20_000)}
    mixed = {mix(number) for number in numbers}
    assert len(mixed) == len(numbers), f"seed {seed}"
    assert all(0 <= number <= 0xFFFFFFFF for number in mixed), f"seed {seed}"


def test_each_bit_of_consecutive_numbers_is_even() -> None:
    count = 10_000
    for bit in range(32):
        ones = sum(int(mix(number)) >> bit & 1 for number in range(count))
        assert abs(ones - count // 2) < count // 20, f"bit {bit}"


def test_fraction_is_between_zero_and_one() -> None:
    assert 0.0 < fraction(0) < fraction(1) < fraction(0xFFFFFFFF) < 1.0
