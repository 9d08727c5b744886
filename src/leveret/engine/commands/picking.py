"""Picking messages out of a queue, wherever they are: in memory, in the log alone, or scheduled.

A pick has three steps, so that whoever picks can decide in between, in one turn:

    plan     the sequence numbers of all messages, in the order in which they would be delivered
    Look     the messages with some of these numbers, which stay
    remove   those that were chosen are out of the queue; the caller accounts for them

Messages in flight are never found. A message that left meanwhile is not found any more, so a plan
may be worked off over many turns while the queue is in use. It takes eight bytes for each message.

Invariant: after `remove` the counts of the queue are those of its messages, and what was removed
belongs to the caller alone: it must be settled in the ledger of the queue in the same turn.
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


class Picked:
    """A message that was found."""

    def __init__(self, message: Message, due_ms: i64) -> None:
        self.message = message
        self.due_ms = due_ms  # 0: it is ready


def plan(queue: Queue, with_ready: bool, with_scheduled: bool) -> "array[int]":
    """The sequence numbers of all messages: ready ones as they stand, then scheduled ones."""
    seqs: array[int] = array("Q")
    if with_ready:
        for line in queue.ready.all_lines():
            seqs.extend([message.seq for message in line.messages()])
            for run in line.paged.runs:
                seqs.extend(run.seqs[run.at :])
    if with_scheduled:
        seqs.extend(queue.scheduled.in_order_of_arrival())
    return seqs


class Look:
    """The messages with some numbers, in the given order.

    What is not there, or cannot be read, is left out. What the log would give beyond `bytes_max` of
    bodies is not looked at: `count` says how many of the numbers were. Messages in memory are shown
    as they are and must not be changed.
    """

    def __init__(self, queue: Queue, seqs: list[int], bytes_max: i64) -> None:
        self._seqs = seqs
        self._bytes_left = bytes_max
        self._found: dict[int, Picked] = {}
        self._unread: set[int] = set()
        self._look_at_ready(queue.ready)
        if len(queue.scheduled) != 0:
            self._look_at_scheduled(queue.scheduled)
        self.count: i64 = len(seqs)
        self.picked: list[Picked] = []
        index: i64 = 0
        for seq in seqs:
            if seq in self._unread:
                self.count = index
                break
            if seq in self._found:
                self.picked.append(self._found[seq])
            index += 1

    def _note(self, message: Message, due_ms: i64) -> None:
        self._found[message.seq] = Picked(message, due_ms)

    def _look_at_ready(self, ready: Ready) -> None:
        for line in ready.all_lines():
            for place in _places_of(line, self._seqs, _is_sorted(ready, line)):
                message = line.fresh[place]
                assert message is not None
                self._note(message, 0)
            if line.returned:
                wanted = set(self._seqs)
                for _, message in line.returned:
                    if message.seq in wanted:
                        self._note(message, 0)
            if line.paged.count != 0 and len(self._found) < len(self._seqs):
                assert ready.pages is not None
                for run in line.paged.runs:
                    self._look_in_log(run, ready.pages)

    def _look_in_log(self, run: PagedRun, pages: QueuePageReader) -> None:
        places = run.places_of(self._seqs)
        if not places:
            return
        part = run.select(places)
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


def remove(queue: Queue, picked: list[Picked]) -> None:
    """Take messages out that a `Look` of this turn has found.

    Nothing may have happened to the queue since.
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
            journal.release(message.position)  # it was in the log only to be out of memory
            message.position = NOWHERE


def _is_sorted(ready: Ready, line: Line) -> bool:
    """Whether numbers ascend along a line: not where messages stand as they came back."""
    return line is not ready.back


def _places_of(line: Line, seqs: list[int], is_sorted: bool) -> list[int]:
    """Where messages with these numbers are among those in memory that never left."""
    fresh = line.fresh
    found: list[int] = []
    if line.at == len(fresh):
        return found
    if not is_sorted:
        wanted = set(seqs)
        for place in range(int(line.at), len(fresh)):
            message = fresh[place]
            if message is not None and message.seq in wanted:
                found.append(place)
        return found
    for seq in seqs:
        place = _search(fresh, line.at, seq)
        if place >= 0:
            found.append(place)
    found.sort()
    return found


def _search(fresh: list[Message | None], low: i64, seq: i64) -> i64:
    """The place of a sequence number; -1 where it is not."""
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
    left: i64 = len(seqs)
    for line in ready.all_lines():
        left -= _remove_in_memory(line, seqs, _is_sorted(ready, line))
        if left == 0:
            break
        for run in list(line.paged.runs):
            places = run.places_of(seqs)
            if places:
                line.paged.remove(run, places)
                left -= len(places)
    assert left == 0
    ready.count -= len(messages)
    for message in messages:
        ready.body_bytes -= len(message.body)


def _remove_in_memory(line: Line, seqs: list[int], is_sorted: bool) -> i64:
    """Take messages out of the part of a line that is in memory; how many there were."""
    places = _places_of(line, seqs, is_sorted)
    count: i64 = len(places)
    if places:
        _cut_out(line, places)
    if line.returned:
        wanted = set(seqs)
        kept = [entry for entry in line.returned if entry[1].seq not in wanted]
        count += len(line.returned) - len(kept)
        heapify(kept)
        line.returned = kept
    return count


def _cut_out(line: Line, places: list[int]) -> None:
    fresh = line.fresh
    rest: list[Message | None] = []
    start: int = line.at
    for place in places:
        message = fresh[place]
        assert message is not None
        line.fresh_bytes -= len(message.body)
        rest.extend(fresh[start:place])
        start = place + 1
    rest.extend(fresh[start:])
    line.fresh = rest
    line.at = 0
