"""What purged and deleted queues held is freed in slices."""

from leveret.engine.backlog.trash import Trash
from leveret.engine.pulse import NEVER, Pulse


def test_little_is_freed_at_once() -> None:
    pulse = Pulse()
    Trash(pulse).add([b"a", b"b"])
    assert pulse.next_due_ms() == NEVER


def test_much_is_freed_bit_by_bit_until_nothing_is_left() -> None:
    pulse = Pulse()
    trash = Trash(pulse)
    lists: list[list[object]] = [[object() for _ in range(50_000)] for _ in range(2)]
    for held in lists:
        trash.add(held)
    sizes = []
    while pulse.next_due_ms() != NEVER:
        pulse.run(10)
        sizes.append(sum(map(len, lists)))
    steps = [before - after for before, after in zip([100_000, *sizes], sizes, strict=False)]
    assert sizes[-1] == 0
    assert max(steps) <= 20_000
