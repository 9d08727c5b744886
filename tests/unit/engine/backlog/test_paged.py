"""Paged runs: the order of messages, and messages that are copied to another log file."""

from leveret.engine.backlog.paged import PagedRun, PagedRuns
from leveret.journal.records import OFFSET_BITS


def line(*places: tuple[int, int, int]) -> PagedRuns:
    """Make a line from (seq, file, offset)."""
    runs = PagedRuns()
    for seq, file, offset in places:
        runs.add(seq, file << OFFSET_BITS | offset)
    return runs


def places(runs: PagedRuns) -> list[tuple[int, int, int]]:
    return [
        (seq, int(run.file), offset)
        for run in runs.runs
        for seq, offset in zip(run.seqs[run.at :], run.offsets[run.at :], strict=True)
    ]


def test_offsets_ascend_in_every_run() -> None:
    """A scheduled message has a lower offset than messages that were queued before it was due."""
    runs = line((5, 1, 500), (6, 1, 600), (2, 1, 200), (7, 1, 700))
    assert places(runs) == [(5, 1, 500), (6, 1, 600), (2, 1, 200), (7, 1, 700)]
    assert [list(run.offsets) for run in runs.runs] == [[500, 600], [200, 700]]


def test_moved_messages_keep_their_place() -> None:
    runs = line((1, 1, 10), (2, 2, 10), (3, 2, 20), (4, 2, 30), (5, 3, 10))
    run = runs.find(2)
    assert isinstance(run, PagedRun)
    runs.move(run, [9 << OFFSET_BITS | 100, 9 << OFFSET_BITS | 200])
    assert places(runs) == [(1, 1, 10), (2, 9, 100), (3, 9, 200), (4, 2, 30), (5, 3, 10)]
    runs.move(run, [9 << OFFSET_BITS | 300])
    assert places(runs) == [(1, 1, 10), (2, 9, 100), (3, 9, 200), (4, 9, 300), (5, 3, 10)]
    assert [int(one.file) for one in runs.runs] == [1, 9, 3]
    assert runs.find(2) is None
    assert runs.count == 5


def test_messages_are_added_after_moved_messages() -> None:
    runs = line((1, 1, 10))
    run = runs.find(1)
    assert run is not None
    runs.move(run, [4 << OFFSET_BITS | 50])
    runs.add(2, 4 << OFFSET_BITS | 40)
    runs.add(3, 4 << OFFSET_BITS | 60)
    assert places(runs) == [(1, 4, 50), (2, 4, 40), (3, 4, 60)]
