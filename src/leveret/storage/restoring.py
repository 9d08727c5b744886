"""Gives a queue its messages back: as positions in the log, the scheduled ones as messages.

A file whose messages of a queue are all alive, as most are in a long queue, becomes a run as it is;
only where some are gone, scheduled or of different priorities each message is looked at.
"""

from mypy_extensions import i64

from leveret.engine.gone import Gone
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.queue import Queue
from leveret.engine.runs import Pages, Run
from leveret.errors import Corrupt
from leveret.storage.replay import Part, QueueLog


def restore(
    queue: Queue, log: QueueLog, pages: Pages, has_ended: bool, missing: set[int]
) -> dict[int, int]:
    """Put the live messages of a queue where they were; how many stand in each file.

    Those of `missing` files are set aside as what cannot be read.

    After a crash (`has_ended` is not set) every message may have been delivered just before it,
    and is marked so: the log is told of deliveries a little later than they happen.
    """
    _restore_returns(queue, log)
    queue.next_seq = max(log.next_seq, log.gone.floor)
    if not has_ended:
        log.delivered_seq = queue.next_seq - 1
    queue.ledger.delivered_seq = log.delivered_seq
    assert queue.ready.pages is not None
    queue.ready.pages.redelivered_through = log.delivered_seq
    live = _Live(log.gone)
    counts: dict[int, int] = {}
    for part in log.parts:
        if part.file in missing:
            counts[part.file] = _set_aside_missing(queue, part, live)
        else:
            counts[part.file] = _restore_part(queue, log, part, live, pages)
    if log.damaged:
        queue.next_seq = max(queue.next_seq, max(log.damaged) + 1)
    queue.ledger.gone = live.rest(queue.next_seq)
    if log.damaged:
        _set_aside(queue, log, counts)
    queue.has_expiries = True
    queue.ready.mortal = True
    queue.arm()
    return counts


def _set_aside(queue: Queue, log: QueueLog, counts: dict[int, int]) -> None:
    """Messages in damaged blocks live on, unread: they are not gone, and their file is kept."""
    taken: list[int] = []
    for seq, (file, offset) in sorted(log.damaged.items()):
        if log.gone.has(seq) or not queue.ledger.gone.has(seq):
            continue  # done with, or the number of a message that can be read
        damaged = queue.ready.damaged
        if not damaged or damaged[-1].file != file:
            damaged.append(Run(file))
        damaged[-1].add(seq, offset)
        counts[file] = counts.get(file, 0) + 1
        taken.append(seq)
    queue.ledger.gone = queue.ledger.gone.without(taken)


class _Live:
    """Which numbers are not gone, asked in ascending order; and what is gone between them."""

    def __init__(self, gone: Gone) -> None:
        self.floor: i64 = gone.floor
        self._runs = gone.runs()
        self._at: i64 = 0
        self._gone = Gone()
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

    def rest(self, end: i64) -> Gone:
        """Everything below `end` that is not live."""
        if end > self._next:
            self._gone.add_run(self._next, end - 1)
        return self._gone


def _set_aside_missing(queue: Queue, part: Part, live: _Live) -> int:
    """The file of these messages is missing: they are not gone, but nobody can have them."""
    run = Run(part.file)
    offsets = part.offsets()
    index = 0
    for number in part.seqs():
        seq: i64 = number
        if live.has_all(seq, seq):
            live.note(seq, seq)
            run.add(seq, offsets[index])
        index += 1
    if run.left() != 0:
        queue.ready.damaged.append(run)
    return run.left()


def _restore_part(queue: Queue, log: QueueLog, part: Part, live: _Live, pages: Pages) -> int:
    seqs = part.seqs()
    first: i64 = seqs[0]
    last: i64 = seqs[-1]
    is_plain = not log.scheduled and not queue.ready.prioritised
    if is_plain and last - first + 1 == len(seqs) and live.has_all(first, last):
        run = Run(part.file)
        run.seqs = seqs
        run.offsets = part.offsets()
        queue.ready.add_run(0, run)
        queue.ready.body_bytes += sum(part.sizes())
        live.note(first, last)
        return len(seqs)
    return _restore_each(queue, log, part, live, pages)


def _restore_each(queue: Queue, log: QueueLog, part: Part, live: _Live, pages: Pages) -> int:
    """One by one. What came back, and has waited long enough, is in its place again."""
    now_ms = queue.turn.now_ms
    runs: dict[int, Run] = {}  # by priority
    offsets = part.offsets()
    sizes = part.sizes()
    priorities = part.priorities()
    count = 0
    index = 0
    for number in part.seqs():
        seq: i64 = number
        if live.has_all(seq, seq):
            live.note(seq, seq)
            count += 1
            due: int | None = log.scheduled.get(seq)
            if due is not None and (due > now_ms or seq not in log.returned):
                _restore_scheduled(queue, part.file, seq, offsets[index], pages, due)
            else:
                priority = priorities[index] if queue.ready.prioritised else 0
                if priority not in runs:
                    runs[priority] = Run(part.file)
                runs[priority].add(seq, offsets[index])
                queue.ready.body_bytes += sizes[index]
        index += 1
    for priority, run in runs.items():
        queue.ready.add_run(priority, run)
    return count


def _restore_returns(queue: Queue, log: QueueLog) -> None:
    """What came back has its counts again, and its time where it waits."""
    for seq, (returns, failures, due_ms) in log.returned.items():
        queue.ledger.returned[seq] = (returns, failures)
        if due_ms != 0:
            log.scheduled[seq] = due_ms
        else:
            log.scheduled.pop(seq, None)


def _restore_scheduled(
    queue: Queue, file: i64, seq: i64, offset: i64, pages: Pages, due_ms: i64
) -> None:
    """Scheduled messages are in memory; one that cannot be read is set aside."""
    run = Run(file)
    run.add(seq, offset)
    try:
        message = pages.read(run, queue.slot)[0]
    except Corrupt as fault:
        queue.ready.damaged.append(run)
        queue.note_damage(fault)
        return
    _schedule(queue, message, due_ms)


def _schedule(queue: Queue, message: Message, due_ms: i64) -> None:
    counts = queue.ledger.returned.get(message.seq)
    if counts is not None:
        message.returns, message.failures = counts
        if queue.counts:
            message.flags |= COUNTED
    if counts is not None or message.seq <= queue.ledger.delivered_seq:
        message.flags |= REDELIVERED
    queue.scheduled.add(message, due_ms)
