"""Find one message of a queue by its sequence number, and count the messages served before it.

Nothing is read from the log except the message itself. Messages in flight are not found here:
sessions hold them (`leveret.engine.insight.walk`).
"""

from bisect import bisect_left

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.insight.filters import READY, SCHEDULED, STUCK
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.stuck_dead_letters import StuckDeadLetters
from leveret.errors import CorruptionError


class MessageLocation:
    """The state of a message, and its place in the queue."""

    def __init__(self, state: str, message: Message | None) -> None:
        self.state = state
        self.message = message  # None if it cannot be read
        self.due_ms: i64 = 0  # scheduled: when it is due
        self.ahead: i64 = 0  # ready: messages served before it
        self.ahead_higher: i64 = 0  # those of `ahead` that have a higher priority


def locate(queue: Queue, stuck: StuckDeadLetters, seq: i64) -> MessageLocation | None:
    """Return the location of a message that is ready, scheduled or stuck, or None."""
    location = _in_ready(queue, seq)
    if location is None:
        location = _in_schedule(queue, seq)
    if location is None:
        for message in stuck.of(queue):
            if message.seq == seq:
                return MessageLocation(STUCK, message)
    return location


def is_damaged(queue: Queue, seq: i64) -> bool:
    """Return True if a message was set aside because it cannot be read."""
    for run in queue.ready.damaged:
        if _index_in(run, seq) >= 0:
            return True
    return False


def _in_ready(queue: Queue, seq: i64) -> MessageLocation | None:
    ready = queue.ready
    before: i64 = 0
    for line in ready.all_lines():
        location = _in_line(line, seq, ready.pages)
        if location is not None:
            location.ahead += before
            location.ahead_higher = before
            return location
        before += line_count(line)
    return None


def line_count(line: Line) -> i64:
    """Return the number of messages in a line."""
    return len(line.fresh) - line.at + len(line.returned) + line.paged.count


def _in_line(line: Line, seq: i64, pages: QueuePageReader | None) -> MessageLocation | None:
    location = _in_memory(line, seq)
    if location is not None:
        return location
    before = line_count(line) - line.paged.count
    for run in line.paged.runs:
        index = _index_in(run, seq)
        if index >= 0:
            assert pages is not None
            message = _read(run, index, pages)
            if message is not None:
                line.mark_returns([message])
            location = MessageLocation(READY, message)
            location.ahead = before + index - run.at
            return location
        before += run.left()
    return None


def _in_memory(line: Line, seq: i64) -> MessageLocation | None:
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
    location = MessageLocation(READY, found)
    location.ahead = index
    for rank, _ in line.returned:
        if rank < found.rank:
            location.ahead += 1
    return location


def _index_in(run: PagedRun, seq: i64) -> i64:
    """Return the index of a sequence number in a run, or -1."""
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


def _in_schedule(queue: Queue, seq: i64) -> MessageLocation | None:
    found = queue.scheduled.find(seq)
    if found is None:
        return None
    location = MessageLocation(SCHEDULED, found[1])
    location.due_ms = found[0]
    return location
