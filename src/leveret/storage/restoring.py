"""Gives a queue its messages back, as positions in the log: no body is read.

A file whose messages of a queue are all alive, as most are in a long queue, becomes a run as it is;
only where some are gone, scheduled or of different priorities each message is looked at.
"""

from mypy_extensions import i64

from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.queues.queue import Queue
from leveret.journal.records import OFFSET_BITS
from leveret.storage.replay import QueueLog
from leveret.storage.stretches import Stretch, is_in_order, stretches, whole


def restore(
    queue: Queue,
    log: QueueLog,
    has_ended: bool,
    missing: set[int],
    superseded: dict[int, set[int]],
) -> dict[int, int]:
    """Put the live messages of a queue where they were; how many stand in each file.

    Those of `missing` files are set aside as what cannot be read.

    After a crash (`has_ended` is not set) every message may have been delivered just before it,
    and is marked so: the log is told of deliveries a little later than they happen.
    """
    is_plain = not queue.ready.prioritised
    for seq, counts in log.returned.items():
        queue.ledger.returned[seq] = counts
        if counts[2] != 0:
            is_plain = False
    queue.next_seq = max(log.next_seq, log.gone.floor)
    if not has_ended:
        log.delivered_seq = queue.next_seq - 1
    queue.ledger.delivered_seq = log.delivered_seq
    assert queue.ready.pages is not None
    queue.ready.pages.redelivered_through = log.delivered_seq
    live = _Live(log.gone)
    counts_by_file: dict[int, int] = {}
    if is_in_order(log.parts):
        found = [whole(part) for part in log.parts]
    else:
        found = stretches(log.parts, superseded)
    for stretch in found:
        if stretch.file in missing:
            count = _set_aside_missing(queue, stretch, live)
        else:
            count = _restore_stretch(queue, stretch, live, is_plain)
        counts_by_file[stretch.file] = counts_by_file.get(stretch.file, 0) + count
    if log.damaged:
        queue.next_seq = max(queue.next_seq, max(log.damaged) + 1)
    queue.ledger.settled = live.rest(queue.next_seq)
    if log.damaged:
        _set_aside(queue, log, counts_by_file)
    queue.arrival_times.restore(log.ages, queue.next_seq)
    queue.has_expiries = True
    queue.ready.has_expiring = True
    queue.arm()
    return counts_by_file


def _set_aside(queue: Queue, log: QueueLog, counts: dict[int, int]) -> None:
    """Messages in damaged blocks live on, unread: they are not gone, and their file is kept."""
    taken: list[int] = []
    for seq, (file, offset) in sorted(log.damaged.items()):
        if log.gone.has(seq) or not queue.ledger.settled.has(seq):
            continue  # done with, or the number of a message that can be read
        damaged = queue.ready.damaged
        if not damaged or damaged[-1].file != file:
            damaged.append(PagedRun(file))
        damaged[-1].add(seq, offset)
        counts[file] = counts.get(file, 0) + 1
        taken.append(seq)
    queue.ledger.settled = queue.ledger.settled.without(taken)


class _Live:
    """Which numbers are not gone, asked in ascending order; and what is gone between them."""

    def __init__(self, gone: SettledNumbers) -> None:
        self.floor: i64 = gone.floor
        self._runs = gone.runs()
        self._at: i64 = 0
        self._gone = SettledNumbers()
        self._next: i64 = 0  # all below are accounted for

    def has_all(self, first: i64, last: i64) -> bool:
        """Whether nothing between two numbers is gone."""
        while self._at < len(self._runs) and self._runs[self._at][1] < first:
            self._at += 1
        if first < self.floor:
            return False
        return self._at == len(self._runs) or last < self._runs[self._at][0]

    def note(self, first: i64, last: i64) -> None:
        """These are live: what lies before them, after the last ones, is gone."""
        if first > self._next:
            self._gone.add_run(self._next, first - 1)
        self._next = last + 1

    def rest(self, end: i64) -> SettledNumbers:
        """Everything below `end` that is not live."""
        if end > self._next:
            self._gone.add_run(self._next, end - 1)
        return self._gone


def _set_aside_missing(queue: Queue, stretch: Stretch, live: _Live) -> int:
    """The file of these messages is missing: they are not gone, but nobody can have them."""
    run = PagedRun(stretch.file)
    offsets = stretch.offsets()
    index = 0
    for number in stretch.seqs():
        seq: i64 = number
        if live.has_all(seq, seq):
            live.note(seq, seq)
            run.add(seq, offsets[index])
        index += 1
    if run.left() != 0:
        queue.ready.damaged.append(run)
    return run.left()


def _restore_stretch(queue: Queue, stretch: Stretch, live: _Live, is_plain: bool) -> int:
    count = 0
    if is_plain and not stretch.dues():
        count = _restore_whole(queue, stretch, live)
    return count if count != 0 else _restore_each(queue, stretch, live)


def _restore_whole(queue: Queue, stretch: Stretch, live: _Live) -> int:
    """A stretch of which nothing is missing becomes a run as it is; 0 where something is."""
    seqs = stretch.seqs()
    first: i64 = seqs[0]
    last: i64 = seqs[-1]
    if last - first + 1 != len(seqs) or not live.has_all(first, last):
        return 0
    run = PagedRun(stretch.file)
    run.seqs = seqs
    run.offsets = stretch.offsets()
    run.last = run.offsets[-1]
    queue.ready.add_run(0, run)
    queue.ready.body_bytes += sum(stretch.sizes())
    live.note(first, last)
    return len(seqs)


def _restore_each(queue: Queue, stretch: Stretch, live: _Live) -> int:
    """One by one. What came back, and has waited long enough, is in its place again."""
    now_ms = queue.turn.now_ms
    runs: dict[int, PagedRun] = {}  # by priority
    file = stretch.file
    offsets = stretch.offsets()
    sizes = stretch.sizes()
    priorities = stretch.priorities()
    dues = stretch.dues()
    returned = queue.ledger.returned
    count = 0
    index = 0
    for number in stretch.seqs():
        seq: i64 = number
        if live.has_all(seq, seq):
            live.note(seq, seq)
            count += 1
            due_ms: i64 = dues[index] if dues else 0
            if returned and seq in returned:
                due_ms = returned[seq][2]
                if due_ms <= now_ms:
                    due_ms = 0
            if due_ms != 0:
                position = file << OFFSET_BITS | i64(offsets[index])
                queue.scheduled.add_in_log(seq, due_ms, position, sizes[index])
            else:
                priority = priorities[index] if queue.ready.prioritised else 0
                if priority not in runs:
                    runs[priority] = PagedRun(file)
                runs[priority].add(seq, offsets[index])
                queue.ready.body_bytes += sizes[index]
        index += 1
    for priority, run in runs.items():
        queue.ready.add_run(priority, run)
    return count
