"""Where one message of a queue is, by its sequence number, and how many are served before it.

Nothing is read from the log but the message itself. Messages in flight are not found here: they are
with the sessions (`leveret.engine.insight.walk`).
"""

from bisect import bisect_left

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.insight.filters import READY, SCHEDULED, STUCK
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.undelivered_deaths import Stuck
from leveret.errors import CorruptionError


class Place:
    """Where a message is."""

    def __init__(self, state: str, message: Message | None) -> None:
        self.state = state
        self.message = message  # None where it cannot be read
        self.due_ms: i64 = 0  # scheduled: when it is due
        self.ahead: i64 = 0  # ready: how many are served before it
        self.ahead_higher: i64 = 0  # those of them that come first by their priority


def locate(queue: Queue, stuck: Stuck, seq: i64) -> Place | None:
    """The place of a message that is ready, scheduled or stuck."""
    place = _in_ready(queue, seq)
    if place is None:
        place = _in_schedule(queue, seq)
    if place is None:
        for message in stuck.of(queue):
            if message.seq == seq:
                return Place(STUCK, message)
    return place


def is_damaged(queue: Queue, seq: i64) -> bool:
    """Whether a message was set aside because it cannot be read."""
    for run in queue.ready.damaged:
        if _index_in(run, seq) >= 0:
            return True
    return False


def _in_ready(queue: Queue, seq: i64) -> Place | None:
    ready = queue.ready
    before: i64 = 0
    for line in ready.all_lines():
        place = _in_line(line, seq, ready.pages)
        if place is not None:
            place.ahead += before
            place.ahead_higher = before
            return place
        before += line_count(line)
    return None


def line_count(line: Line) -> i64:
    """How many messages are in a line."""
    return len(line.fresh) - line.at + len(line.returned) + line.paged.count


def _in_line(line: Line, seq: i64, pages: QueuePageReader | None) -> Place | None:
    place = _in_memory(line, seq)
    if place is not None:
        return place
    before = line_count(line) - line.paged.count
    for run in line.paged.runs:
        index = _index_in(run, seq)
        if index >= 0:
            assert pages is not None
            place = Place(READY, _read(run, index, pages))
            place.ahead = before + index - run.at
            return place
        before += run.left()
    return None


def _in_memory(line: Line, seq: i64) -> Place | None:
    found: Message | None = None
    index: i64 = 0
    for message in line.fresh[line.at :]:
        assert message is not None
        if message.seq == seq:
            found = message
            break
        index += 1
    if found is None:
        index = 0
        for _, message in line.returned:
            if message.seq == seq:
                found = message
                break
    if found is None:
        return None
    place = Place(READY, found)
    place.ahead = index
    for rank, _ in line.returned:
        if rank < found.rank:
            place.ahead += 1
    return place


def _index_in(run: PagedRun, seq: i64) -> i64:
    """The index of a number in a run; -1 where it is not."""
    index: i64 = bisect_left(run.seqs, seq, run.at)
    if index < len(run.seqs) and run.seqs[index] == seq:
        return index
    return -1


def _read(run: PagedRun, index: i64, pages: QueuePageReader) -> Message | None:
    one = PagedRun(run.file)
    one.add(run.seqs[index], run.offsets[index])
    try:
        return pages.peek(one)[0]
    except CorruptionError:
        return None


def _in_schedule(queue: Queue, seq: i64) -> Place | None:
    found = queue.scheduled.find(seq)
    if found is None:
        return None
    place = Place(SCHEDULED, found[1])
    place.due_ms = found[0]
    return place
