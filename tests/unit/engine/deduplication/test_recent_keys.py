"""The compact set of keys, compared with a plain list, and its memory."""

import tracemalloc
from hashlib import blake2b
from random import Random

import pytest

from leveret.engine.deduplication.recent_keys import PAGE_BYTES, PAGE_KEYS, RecentKeys

ALL = 1 << 60


def digest(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=16).digest()


def clash(number: int) -> bytes:
    """Return digests that all have the same place in the same shard."""
    return (number << 5).to_bytes(8, "big") + (number << 40).to_bytes(8, "big")


def logged(keys: RecentKeys) -> list[tuple[bytes, int]]:
    """Return digests and times, as a checkpoint has them."""
    found: list[tuple[bytes, int]] = []
    for data in keys.logged():
        count = len(data) // 24
        times = [int.from_bytes(data[8 * n : 8 * n + 8], "big") for n in range(count)]
        digests = [data[8 * count + 16 * n :][:16] for n in range(count)]
        found += zip(digests, times, strict=True)
    return found


def loaded(keys: RecentKeys, size: int) -> RecentKeys:
    """Return the same keys after a restart."""
    again = RecentKeys(size)
    parts = keys.logged()
    pages = [data for data in parts if len(data) == PAGE_BYTES]
    rest = [data for data in parts if len(data) != PAGE_BYTES]
    assert [*pages, *rest] == parts
    singles = [
        time.to_bytes(8, "big") + key for key, time in logged(keys)[len(pages) * PAGE_KEYS :]
    ]
    again.load(pages, b"".join(singles))
    return again


class Model:
    """A plain list of keys: (digest, time), oldest first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: list[tuple[bytes, int]] = []

    def add(self, key: bytes, time_ms: int) -> None:
        self.known.append((key, time_ms))
        if len(self.known) > self.size:
            self.known.pop(0)

    def added_ms(self, key: bytes, after_ms: int) -> int:
        return next((t for k, t in self.known if k == key and abs(t) > after_ms), 0)

    def forget(self, until_ms: int, most: int) -> None:
        while self.known and most > 0 and abs(self.known[0][1]) <= until_ms:
            self.known.pop(0)
            most -= 1


@pytest.mark.parametrize("form", [digest, clash], ids=["spread", "clashing"])
def test_random_operations_agree_with_a_plain_list(seed: int, form: object) -> None:
    print(f"seed {seed}")
    make = digest if form is digest else clash
    rng = Random(seed)
    for _ in range(12):
        size = rng.choice([1, 2, 7, 40, 200])
        window_ms = rng.choice([1, 50, 1000])
        keys, model = RecentKeys(size), Model(size)
        now_ms = 10_000
        for _ in range(600):
            now_ms += rng.choice([0, 0, 0, 1, 5, window_ms // 3])
            key = make(rng.randrange(1, 2 * size + 5))
            after_ms = now_ms - window_ms
            found = keys.added_ms(key, after_ms)
            assert found == model.added_ms(key, after_ms)
            if found == 0:
                time_ms = rng.choice([now_ms, now_ms, -now_ms])
                keys.add(key, time_ms)
                model.add(key, time_ms)
            if rng.random() < 0.1:
                # If all keys are dropped at once, more than `most` may be dropped.
                most = rng.choice([1, 3, ALL])
                is_all_old = bool(model.known) and all(abs(t) <= after_ms for _, t in model.known)
                keys.forget(after_ms, most)
                model.forget(after_ms, ALL if is_all_old else most)
            assert keys.count() == len(model.known)
            oldest = abs(model.known[0][1]) if model.known else 0
            assert keys.oldest_ms() == oldest
        expected = [(k, t) for k, t in model.known if t > 0]
        assert logged(keys) == expected
        again = loaded(keys, size)
        assert all(again.added_ms(key, t - 1) != 0 for key, t in expected)
        assert again.count() == len(expected)


def test_the_oldest_goes_first_when_there_are_too_many() -> None:
    keys = RecentKeys(3)
    for number in range(5):
        keys.add(digest(number), 100 + number)
    assert [keys.added_ms(digest(n), 0) for n in range(5)] == [0, 0, 102, 103, 104]
    assert keys.count() == 3


def test_many_pages_fill_and_empty() -> None:
    keys = RecentKeys(3 * PAGE_KEYS)
    for number in range(5 * PAGE_KEYS + 7):
        keys.add(digest(number), 1 + number)
    assert keys.count() == 3 * PAGE_KEYS
    first = 2 * PAGE_KEYS + 7
    assert keys.added_ms(digest(first - 1), 0) == 0
    assert keys.added_ms(digest(first), 0) == 1 + first
    times = [time for _, time in logged(keys)]
    assert times == list(range(1 + 2 * PAGE_KEYS, 5 * PAGE_KEYS + 8))
    again = loaded(keys, 3 * PAGE_KEYS)
    assert again.count() == 3 * PAGE_KEYS
    assert again.oldest_ms() == keys.oldest_ms() == 1 + first
    assert again.added_ms(digest(first), 0) == 1 + first
    assert again.added_ms(digest(first - 1), 0) == 0
    keys.forget(5 * PAGE_KEYS, ALL)
    assert keys.count() == 7
    assert keys.added_ms(digest(5 * PAGE_KEYS), 0) != 0
    keys.forget(ALL, 1)
    assert keys.count() == 0


def test_keys_that_are_not_logged_do_not_survive() -> None:
    keys = RecentKeys(3 * PAGE_KEYS)
    for number in range(2 * PAGE_KEYS + 9):
        keys.add(digest(number), 1 + number if number % 3 else -1 - number)
    expected = [(digest(n), 1 + n) for n in range(2 * PAGE_KEYS + 9) if n % 3]
    assert logged(keys) == expected


def test_numbers_of_keys_may_pass_the_width_of_an_entry() -> None:
    """Keys are still found after two thousand million additions."""
    keys = RecentKeys(10)
    near = (0x7FFFFFFF // PAGE_KEYS) * PAGE_KEYS
    keys._first = keys._head = keys._end = near  # as after that many additions
    for number in range(2 * PAGE_KEYS):
        keys.add(digest(number), 1 + number)
        assert keys.added_ms(digest(number), 0) == 1 + number
        if number >= 10:
            assert keys.added_ms(digest(number - 10), 0) == 0
            assert keys.added_ms(digest(number - 9), 0) != 0


@pytest.mark.parametrize("count", [10_000, 20_000])
def test_a_key_takes_at_most_forty_bytes(count: int) -> None:
    """A million keys then take 40 MB, of the 150 MiB that are allowed."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        keys = RecentKeys(count)
        for number in range(count):
            keys.add(digest(number), 1)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 28 < (after - before) / count < 40  # 24 in pages, the rest in shards
    assert keys.count() == count


def test_memory_of_dropped_keys_is_freed() -> None:
    count = 12_000
    tracemalloc.start()
    try:
        keys = RecentKeys(count)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            keys.add(digest(number), 1 + number)
        keys.forget(count - 100, ALL)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert keys.count() == 100
    assert after - before < 200_000, "of 400,000"
