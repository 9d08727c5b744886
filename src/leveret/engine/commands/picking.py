"""Pick messages out of a queue, wherever they are: in memory, in the log alone, or scheduled.

A pick has three steps, so that the caller can decide in between, in one turn:

    plan     the sequence numbers of all messages, in the order of delivery
    Lookup   the messages with some of these numbers, which stay in the queue
    remove   take chosen messages out of the queue; the caller accounts for them

Messages in flight are never found. A message that has left the queue is not found any more, so a
plan may be worked off over many turns while the queue is in use. It takes eight bytes for each
message.

Invariant: after `remove` the counts of the queue are those of its messages. The removed messages
belong to the caller, who must settle them in the ledger of the queue in the same turn.
"""

from array import array
from heapq import heapify

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.ready import Ready
from leveret.engine.backlog.scheduled import Scheduled
from leveret.engine.backlog.scheduled_in_log import ScheduledEntry
from leveret.engine.message import LOGGED, Message
from leveret.engine.queues.queue import Queue
from leveret.journal.records import NOWHERE


class PickedMessage:
    """A message that a `Lookup` has found."""

    def __init__(self, message: Message, due_ms: i64) -> None:
        self.message = message
        self.due_ms = due_ms  # 0: the message is ready


def plan(queue: Queue, *, with_ready: bool, with_scheduled: bool) -> "array[int]":
    """Return the sequence numbers of all messages: ready ones in order, then scheduled ones."""
    seqs: array[int] = array("Q")
    if with_ready:
        for line in queue.ready.all_lines():
            seqs.extend([message.seq for message in line.messages()])
            for run in line.paged.runs:
                seqs.extend(run.seqs[run.at :])
    if with_scheduled:
        seqs.extend(queue.scheduled.in_order_of_arrival())
    return seqs


class Lookup:
    """The messages with the given numbers, in the given order.

    Missing and unreadable messages are left out. Reading from the log stops after `bytes_max` bytes
    of bodies: `count` says how many of the numbers were looked up. Messages in memory are the
    queue's own and must not be changed.
    """

    def __init__(self, queue: Queue, seqs: list[int], bytes_max: i64) -> None:
        self._seqs = seqs
        self._bytes_left = bytes_max
        self._found: dict[int, PickedMessage] = {}
        self._unread: set[int] = set()
        self._wanted = set(seqs)
        self._look_at_ready(queue.ready)
        if len(queue.scheduled) != 0:
            self._look_at_scheduled(queue.scheduled)
        self.count: i64 = len(seqs)
        self.picked: list[PickedMessage] = []
        index: i64 = 0
        for seq in seqs:
            if seq in self._unread:
                self.count = index
                break
            if seq in self._found:
                self.picked.append(self._found[seq])
            index += 1

    def _note(self, message: Message, due_ms: i64) -> None:
        self._found[message.seq] = PickedMessage(message, due_ms)

    def _look_at_ready(self, ready: Ready) -> None:
        for line in ready.all_lines():
            for index in _indexes_in(line, self._seqs, self._wanted, _is_sorted(ready, line)):
                message = line.fresh[index]
                assert message is not None
                self._note(message, 0)
            for _, message in line.returned:
                if message.seq in self._wanted:
                    self._note(message, 0)
            if line.paged.count != 0 and len(self._found) < len(self._seqs):
                assert ready.pages is not None
                for run in line.paged.runs:
                    self._look_in_log(run, ready.pages)

    def _look_in_log(self, run: PagedRun, pages: QueuePageReader) -> None:
        indexes = run.places_of(self._seqs)
        if not indexes:
            return
        part = run.select(indexes)
        while part.left() != 0 and self._bytes_left > 0:
            for message in pages.read_on(part):
                self._note(message, 0)
                self._bytes_left -= len(message.body)
        self._unread.update(part.seqs[part.at :])

    def _look_at_scheduled(self, scheduled: Scheduled) -> None:
        left = {seq for seq in self._seqs if seq not in self._found and seq not in self._unread}
        for due_ms, message in scheduled.find_in_memory(left):
            self._note(message, due_ms)
            left.discard(message.seq)
        if not left or scheduled.in_log.count == 0:
            return
        by_seq = {entry[2]: entry for entry in scheduled.in_log.entries_of(left)}
        chosen: list[ScheduledEntry] = []
        for seq in self._seqs:
            if seq in by_seq:
                if self._bytes_left <= 0:
                    self._unread.add(seq)
                    continue
                chosen.append(by_seq[seq])
                self._bytes_left -= by_seq[seq][4]
        for due_ms, message in scheduled.read(chosen):
            self._note(message, due_ms)


def remove(queue: Queue, picked: list[PickedMessage]) -> None:
    """Take messages out of the queue that a `Lookup` of this turn has found.

    The queue must not have changed since the lookup.
    """
    scheduled = [one.message for one in picked if one.due_ms != 0]
    messages = [one.message for one in picked if one.due_ms == 0]
    if scheduled:
        queue.scheduled.remove(scheduled)
    if messages:
        _remove_ready(queue.ready, messages)
    journal = queue.ledger.journal
    for one in picked:
        message = one.message
        if message.position != NOWHERE and not message.flags & LOGGED:
            assert journal is not None
            journal.release(message.position)  # it was in the log only to save memory
            message.position = NOWHERE


def _is_sorted(ready: Ready, line: Line) -> bool:
    """Return True if numbers ascend along a line. In the line of returned messages they do not."""
    return line is not ready.back


def _indexes_in(line: Line, seqs: list[int], wanted: set[int], is_sorted: bool) -> list[int]:
    """Return the indexes in `line.fresh` of the messages with these numbers, given twice.

    A short line is passed through: there may be a line for each message of the queue.
    """
    fresh = line.fresh
    found: list[int] = []
    if line.at == len(fresh):
        return found
    if not is_sorted or len(fresh) - line.at < len(seqs):
        for index in range(int(line.at), len(fresh)):
            message = fresh[index]
            if message is not None and message.seq in wanted:
                found.append(index)
        return found
    for seq in seqs:
        index = _search(fresh, line.at, seq)
        if index >= 0:
            found.append(index)
    found.sort()
    return found


def _search(fresh: list[Message | None], low: i64, seq: i64) -> i64:
    """Return the index of a sequence number, or -1."""
    high: i64 = len(fresh)
    while low < high:
        middle = (low + high) >> 1
        message = fresh[middle]
        assert message is not None
        if message.seq == seq:
            return middle
        if message.seq < seq:
            low = middle + 1
        else:
            high = middle
    return -1


def _remove_ready(ready: Ready, messages: list[Message]) -> None:
    seqs = [message.seq for message in messages]
    wanted = set(seqs)
    left: i64 = len(seqs)
    for line in ready.all_lines():
        left -= _remove_in_memory(line, seqs, wanted, _is_sorted(ready, line))
        if left == 0:
            break
        for run in list(line.paged.runs):
            indexes = run.places_of(seqs)
            if indexes:
                line.paged.remove(run, indexes)
                left -= len(indexes)
    assert left == 0
    ready.count -= len(messages)
    for message in messages:
        ready.body_bytes -= len(message.body)


def _remove_in_memory(line: Line, seqs: list[int], wanted: set[int], is_sorted: bool) -> i64:
    """Take messages out of the part of a line that is in memory. Return how many."""
    indexes = _indexes_in(line, seqs, wanted, is_sorted)
    count: i64 = len(indexes)
    if indexes:
        _cut_out(line, indexes)
    if line.returned:
        kept = [entry for entry in line.returned if entry[1].seq not in wanted]
        count += len(line.returned) - len(kept)
        heapify(kept)
        line.returned = kept
        line.returned_bytes = sum([len(each.body) + len(each.header) for _, each in kept])
    return count


def _cut_out(line: Line, indexes: list[int]) -> None:
    fresh = line.fresh
    rest: list[Message | None] = []
    start: int = line.at
    for index in indexes:
        message = fresh[index]
        assert message is not None
        line.fresh_bytes -= len(message.body) + len(message.header)
        rest.extend(fresh[start:index])
        start = index + 1
    rest.extend(fresh[start:])
    line.fresh = rest
    line.at = 0
