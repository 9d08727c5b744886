"""The objects of purged and deleted queues are freed in slices."""

from leveret.engine.backlog.lazy_free import LazyFree
from leveret.engine.timer_queue import NEVER, TimerQueue


def test_short_list_is_left_to_the_caller() -> None:
    timers = TimerQueue()
    LazyFree(timers).add([b"a", b"b"])
    assert timers.next_due_ms() == NEVER


def test_long_list_is_freed_in_slices() -> None:
    timers = TimerQueue()
    lazy_free = LazyFree(timers)
    lists: list[list[object]] = [[object() for _ in range(50_000)] for _ in range(2)]
    for held in lists:
        lazy_free.add(held)
    sizes = []
    while timers.next_due_ms() != NEVER:
        timers.run(10)
        sizes.append(sum(map(len, lists)))
    steps = [before - after for before, after in zip([100_000, *sizes], sizes, strict=False)]
    assert sizes[-1] == 0
    assert max(steps) <= 20_000
