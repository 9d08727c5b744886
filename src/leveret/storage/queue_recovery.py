"""Gives a queue its messages back at a start, as positions in the log. No body is read.

If all messages of a queue in a file are live, as in most files of a long queue, the whole file
becomes one run. Messages are handled one by one only if some are settled, scheduled or of different
priorities.
"""

from mypy_extensions import i64

from leveret.engine.backlog.arrival_times import ArrivalTimes
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.ready import Ready
from leveret.engine.backlog.scheduled import Scheduled
from leveret.engine.backlog.settled_numbers import SettledNumbers
from leveret.engine.queues.queue import Queue
from leveret.journal.records import OFFSET_BITS
from leveret.storage.message_ranges import MessageRange, is_in_order, merge_ranges, whole_range
from leveret.storage.replay import QueueLog


class QueueRestoration:
    """Restores the live messages of one queue, one range of a log file at a time.

    Messages in `missing` files are set aside as unreadable.

    After a crash (`has_ended` is False) every message is marked as redelivered. Deliveries reach
    the log a little later than they happen, so any message may have been delivered just before the
    crash.
    """

    def __init__(
        self,
        queue: Queue,
        log: QueueLog,
        has_ended: bool,
        missing: set[int],
        superseded: dict[int, set[int]],
    ) -> None:
        self._queue = queue
        self._log = log
        self._missing = missing
        self._is_plain = not queue.ready.prioritised
        for seq, counts in log.returned.items():
            queue.ledger.returned[seq] = counts
            if counts[2] != 0:
                self._is_plain = False
        queue.next_seq = max(log.next_seq, log.gone.floor)
        if not has_ended:
            log.delivered_seq = queue.next_seq - 1
        queue.ledger.delivered_seq = log.delivered_seq
        assert queue.ready.pages is not None
        queue.ready.pages.redelivered_through = log.delivered_seq
        self._live = _LiveNumbers(log.gone)
        self._counts: dict[int, int] = {}  # restored messages, by file
        self._is_in_order = is_in_order(log.by_file)
        self._merged: list[MessageRange] = []
        if not self._is_in_order:
            self._merged = merge_ranges(log.by_file, superseded)
        self._at = 0  # ranges that are done

    def restore_all(self) -> dict[int, int]:
        """Restore all ranges, and return how many live messages are in each file."""
        while self.restore_next():
            pass
        return self.finish()

    def restore_next(self) -> bool:
        """Restore the next range; return False if there was none left."""
        ranges = len(self._log.by_file) if self._is_in_order else len(self._merged)
        if self._at == ranges:
            return False
        if self._is_in_order:
            message_range = whole_range(self._log.by_file[self._at])
        else:
            message_range = self._merged[self._at]
        self._at += 1
        if message_range.file in self._missing:
            count = _set_aside_missing(self._queue, message_range, self._live)
        else:
            count = _restore_range(self._queue, message_range, self._live, self._is_plain)
        self._counts[message_range.file] = self._counts.get(message_range.file, 0) + count
        return True

    def finish(self) -> dict[int, int]:
        """End the restoration, and return how many live messages are in each file."""
        queue = self._queue
        log = self._log
        if log.damaged:
            queue.next_seq = max(queue.next_seq, max(log.damaged) + 1)
        queue.ledger.settled = self._live.settled_below(queue.next_seq)
        if log.damaged:
            _set_aside(queue, log, self._counts)
        queue.arrival_times.restore(log.ages, queue.next_seq)
        queue.has_expiries = True
        queue.ready.has_expiring = True
        queue.arm()
        return self._counts


def set_aside_queue(queue: Queue, log: QueueLog) -> dict[int, int]:
    """Set aside all unsettled messages of a queue that a fault kept from being restored.

    They stay in the log as they are, so the next start tries again. Return the number of messages
    that are set aside, by log file.
    """
    queue.ready = Ready(
        prioritised=queue.ready.prioritised, returns_first=queue.ready.returns_first
    )
    queue.scheduled = Scheduled()
    queue.arrival_times = ArrivalTimes()
    queue.ledger.returned.clear()
    queue.ledger.returned.update(log.returned)
    queue.ledger.settled = log.gone
    queue.ledger.delivered_seq = log.delivered_seq
    queue.next_seq = max([log.next_seq, log.gone.floor, *[seq + 1 for seq in log.damaged]])
    queue.arrival_times.next_seq = queue.next_seq
    counts: dict[int, int] = {}
    for messages in log.by_file:
        live = set(log.gone.missing(sorted(messages.seqs())))
        run = PagedRun(messages.file)
        for seq, offset in zip(messages.seqs(), messages.offsets(), strict=True):
            if seq in live:
                run.add(seq, offset)
        if live:
            queue.ready.damaged.append(run)
            counts[messages.file] = run.left()
    return counts


def _set_aside(queue: Queue, log: QueueLog, counts: dict[int, int]) -> None:
    """Set aside the messages in damaged blocks: they stay unsettled, and their file is kept."""
    taken: list[int] = []
    for seq, (file, offset) in sorted(log.damaged.items()):
        if log.gone.has(seq) or not queue.ledger.settled.has(seq):
            continue  # settled, or this number belongs to a readable message
        damaged = queue.ready.damaged
        if not damaged or damaged[-1].file != file:
            damaged.append(PagedRun(file))
        damaged[-1].add(seq, offset)
        counts[file] = counts.get(file, 0) + 1
        taken.append(seq)
    queue.ledger.settled = queue.ledger.settled.without(taken)


class _LiveNumbers:
    """Finds unsettled numbers, queried in ascending order, and collects the settled ones."""

    def __init__(self, gone: SettledNumbers) -> None:
        self.floor: i64 = gone.floor
        self._runs = gone.runs()
        self._at: i64 = 0
        self._gone = SettledNumbers()
        self._next: i64 = 0  # all numbers below are handled

    def has_all(self, first: i64, last: i64) -> bool:
        """Return True if no number from `first` to `last` is settled."""
        while self._at < len(self._runs) and self._runs[self._at][1] < first:
            self._at += 1
        if first < self.floor:
            return False
        return self._at == len(self._runs) or last < self._runs[self._at][0]

    def note(self, first: i64, last: i64) -> None:
        """Note that these numbers are live. The unhandled numbers before them are settled."""
        if first > self._next:
            self._gone.add_run(self._next, first - 1)
        self._next = last + 1

    def settled_below(self, end: i64) -> SettledNumbers:
        """Return all numbers below `end` that are not live."""
        if end > self._next:
            self._gone.add_run(self._next, end - 1)
        return self._gone


def _set_aside_missing(queue: Queue, message_range: MessageRange, live: _LiveNumbers) -> int:
    """Set aside messages whose file is missing: they are not settled, but cannot be read."""
    run = PagedRun(message_range.file)
    offsets = message_range.offsets()
    index = 0
    for number in message_range.seqs():
        seq: i64 = number
        if live.has_all(seq, seq):
            live.note(seq, seq)
            run.add(seq, offsets[index])
        index += 1
    if run.left() != 0:
        queue.ready.damaged.append(run)
    return run.left()


def _restore_range(
    queue: Queue, message_range: MessageRange, live: _LiveNumbers, is_plain: bool
) -> int:
    count = 0
    if is_plain and not message_range.dues():
        count = _restore_whole(queue, message_range, live)
    return count if count != 0 else _restore_each(queue, message_range, live)


def _restore_whole(queue: Queue, message_range: MessageRange, live: _LiveNumbers) -> int:
    """Turn a range without gaps into one run; return 0 if it has gaps or settled messages."""
    seqs = message_range.seqs()
    first: i64 = seqs[0]
    last: i64 = seqs[-1]
    if last - first + 1 != len(seqs) or not live.has_all(first, last):
        return 0
    run = PagedRun(message_range.file)
    run.seqs = seqs
    run.offsets = message_range.offsets()
    run.last = run.offsets[-1]
    queue.ready.add_run(0, run)
    queue.ready.body_bytes += sum(message_range.sizes())
    live.note(first, last)
    return len(seqs)


def _restore_each(queue: Queue, message_range: MessageRange, live: _LiveNumbers) -> int:
    """Restore messages one by one. A returned message whose delay is over becomes ready."""
    now_ms = queue.turn.now_ms
    runs: dict[int, PagedRun] = {}  # by priority
    file = message_range.file
    offsets = message_range.offsets()
    sizes = message_range.sizes()
    priorities = message_range.priorities()
    dues = message_range.dues()
    returned = queue.ledger.returned
    count = 0
    index = 0
    for number in message_range.seqs():
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
