"""The messages of a queue are merged in order and once, however often they were copied."""

from random import Random

from leveret.storage.message_ranges import MessageRange, is_in_order, merge_ranges, whole_range
from leveret.storage.replay import FileMessages


def part(file: int, seqs: list[int]) -> FileMessages:
    made = FileMessages(file)
    for index, seq in enumerate(seqs):
        made.add(seq, index, seq % 7, seq % 3, seq % 2)
    return made


def seen(found: list[MessageRange]) -> list[tuple[int, int, int]]:
    """Return number, file and offset of every message."""
    return [
        (seq, int(one.file), offset)
        for one in found
        for seq, offset in zip(one.seqs(), one.offsets(), strict=True)
    ]


def test_columns_of_a_file_belong_together() -> None:
    one = whole_range(part(4, [2, 3, 5]))
    assert list(one.seqs()) == [2, 3, 5]
    assert list(one.sizes()) == [2, 3, 5]
    assert list(one.priorities()) == [2, 0, 2]
    assert list(one.dues()) == [0, 1, 1]


def test_nothing_is_due_in_a_file_without_scheduled_messages() -> None:
    assert list(whole_range(part(4, [2, 4, 6])).dues()) == []


def test_files_in_order_are_recognised() -> None:
    assert is_in_order([part(1, [1, 2]), part(2, [3, 9])])
    assert not is_in_order([part(1, [1, 2]), part(2, [2, 9])])
    assert not is_in_order([part(1, [1, 5, 3])])


def test_copies_in_later_files_count() -> None:
    superseded: dict[int, set[int]] = {}
    found = merge_ranges(
        [part(1, [1, 2, 3, 4]), part(2, [7, 8, 2, 3]), part(3, [3, 9])], superseded
    )
    assert seen(found) == [
        (1, 1, 0),
        (2, 2, 2),
        (3, 3, 0),
        (4, 1, 3),
        (7, 2, 0),
        (8, 2, 1),
        (9, 3, 1),
    ]
    assert superseded == {1: {1, 2}, 2: {3}}


def test_long_ranges_stay_whole() -> None:
    young = part(2, [*range(5000, 9000), *range(0, 1000, 100)])
    found = merge_ranges([part(1, list(range(2000, 5000))), young], {})
    assert [(int(one.file), len(one)) for one in found] == [(2, 10), (1, 3000), (2, 4000)]


def test_random_copies_against_a_dict(seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(100):
        parts: list[FileMessages] = []
        model: dict[int, tuple[int, int]] = {}
        next_seq = 0
        for file in range(1, rng.randrange(2, 7)):
            fresh = list(range(next_seq, next_seq + rng.randrange(1, 30)))
            next_seq = fresh[-1] + 1
            for again in [sorted(rng.sample(sorted(model), rng.randrange(len(model) + 1)))] * 1:
                at = rng.randrange(len(fresh) + 1)
                fresh[at:at] = again
            parts.append(part(file, fresh))
            model.update({seq: (file, offset) for offset, seq in enumerate(fresh)})
        found = seen(merge_ranges(parts, {}))
        assert found == [(seq, *model[seq]) for seq in sorted(model)]
