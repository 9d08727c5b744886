"""Ready messages, in the order in which they will be delivered.

A `Line` is one FIFO: messages in order of arrival (`fresh`), and those that came back (`returned`),
which keep their original place by rank. `Ready` is a line for each priority in use, highest first;
a queue without priorities has just one line.

Quorum queues serve what came back before everything else, whatever its priority (RabbitMQ 4.3):
`returns_first` puts it in a line of its own.

Priorities may be any numbers and many: finding the highest costs O(log n) of those in use.

Invariants: `count` and `body_bytes` are the sums over all lines; `levels` holds each key of `lines`
once. A line may be empty until its priority is the highest.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Message
from leveret.engine.runs import QueuePages, Run, Runs
from leveret.errors import Corrupt
from leveret.journal.records import NOWHERE

WINDOW: Final = 8192  # messages of a line in memory before further ones are left to the log
LAZY_WINDOW: Final = 64  # the same for a lazy queue
WINDOW_BYTES: Final = 16 * 1024 * 1024

MESSAGE_BYTES: Final = 300  # a message in memory besides its body: object, header, list slots
RUN_BYTES: Final = 12  # a message that is only a position

_COMPACT_AT: Final = 1024  # taken slots at the front of `fresh` before it is worth moving the rest


class Line:
    """One FIFO that takes messages back to their place.

    Its head is in memory; what is beyond the window stands in the log (`paged`) and is read back
    when the head is used up. What came back is older than everything in the log's part.
    """

    def __init__(self) -> None:
        self.fresh: list[Message | None] = []  # by rank; slots before `at` are taken
        self.at: i64 = 0
        self.fresh_bytes: i64 = 0  # bodies in `fresh`
        self.returned: list[tuple[int, Message]] = []  # heap by rank
        self.paged = Runs()

    def is_empty(self) -> bool:
        return self.at == len(self.fresh) and not self.returned and self.paged.count == 0

    def is_full(self, window: i64) -> bool:
        """Whether a further message belongs into the log's part."""
        return (
            self.paged.count != 0
            or len(self.fresh) - self.at >= window
            or self.fresh_bytes >= WINDOW_BYTES
        )

    def append(self, message: Message) -> None:
        self.fresh.append(message)
        self.fresh_bytes += len(message.body)

    def needs_page(self) -> bool:
        """Whether the next message is in the log alone."""
        return self.at == len(self.fresh) and not self.returned and self.paged.count != 0

    def head(self) -> Message:
        """The next message, which stays; it is in memory."""
        returned = self.returned
        if self.at < len(self.fresh):
            first = self.fresh[self.at]
            assert first is not None
            if not returned or first.rank < returned[0][0]:
                return first
        return returned[0][1]

    def head_rank(self) -> i64:
        """The rank of the next message, wherever it is; -1 in an empty line."""
        rank: i64 = -1
        if self.at < len(self.fresh):
            first = self.fresh[self.at]
            assert first is not None
            rank = first.rank
        elif self.paged.count != 0:
            run = self.paged.runs[0]
            rank = run.seqs[run.at]
        if self.returned:
            back: i64 = self.returned[0][0]
            if rank < 0 or back < rank:
                rank = back
        return rank

    def pop(self) -> Message:
        """Take the next message; it is in memory."""
        fresh = self.fresh
        at = self.at
        if at < len(fresh):
            first = fresh[at]
            assert first is not None
            if not self.returned or first.rank < self.returned[0][0]:
                fresh[at] = None
                self.fresh_bytes -= len(first.body)
                self._advance(at + 1)
                return first
        return heappop(self.returned)[1]

    def put_back(self, message: Message) -> None:
        """Return a message to its place by rank."""
        heappush(self.returned, (message.rank, message))

    def _advance(self, at: i64) -> None:
        """Move the front to `at` and give back the slots before it now and then."""
        fresh = self.fresh
        if at == len(fresh):
            fresh.clear()
            at = 0
        elif at >= _COMPACT_AT and at * 2 > len(fresh):
            del fresh[:at]
            at = 0
        self.at = at

    def messages(self) -> list[Message]:
        """All messages in memory, in order, without taking them."""
        kept: list[Message] = [m for m in self.fresh[self.at :] if m is not None]
        if self.returned:
            kept.extend([m for _, m in self.returned])
            kept.sort(key=_rank)
        return kept


def _rank(message: Message) -> int:
    return message.rank


class Ready:
    """The lines of a queue."""

    def __init__(self, *, prioritised: bool, returns_first: bool) -> None:
        self.count: i64 = 0
        self.body_bytes: i64 = 0
        self.prioritised = prioritised
        self.returns_first = returns_first
        self.line = Line()  # the only line of a queue without priorities
        self.back = Line()  # what came back, where that is served first
        self.levels: list[int] = []  # heap of the priorities in use, negated: the highest is first
        self.lines: dict[int, Line] = {}  # a line for each of them
        self.mortal = False  # a message with an expiry has been here
        self.window: i64 = WINDOW
        self.damaged: list[Run] = []  # messages that cannot be read: set aside, not counted above
        self.pages: QueuePages | None = None  # where there is a log
        self.returns: i64 = 0  # messages that came back to be served first

    def push(self, message: Message) -> None:
        """Add a message at the end of its priority."""
        self.count += 1
        self.body_bytes += len(message.body)
        if message.expires_ms != 0:
            self.mortal = True
        line = self._level(message.priority) if self.prioritised else self.line
        if message.position != NOWHERE and line.is_full(self.window):
            line.paged.add(message.seq, message.position)
        else:
            line.append(message)

    def is_full(self, priority: i64) -> bool:
        """Whether a further message of this priority belongs into the log."""
        line = self._level(priority) if self.prioritised else self.line
        return line.is_full(self.window)

    def add_run(self, priority: i64, run: Run) -> None:
        """Add messages that are in the log alone; their bytes are counted by the caller."""
        line = self._level(priority) if self.prioritised else self.line
        line.paged.runs.append(run)
        line.paged.count += run.left()
        self.count += run.left()

    def damaged_count(self) -> i64:
        """How many messages are set aside."""
        count: i64 = 0
        for run in self.damaged:
            count += run.left()
        return count

    def paged_runs(self) -> list[Run]:
        """Everything that is in the log alone."""
        return [run for line in self.all_lines() for run in line.paged.runs]

    def paged_lines(self) -> list[Runs]:
        """The same, line by line."""
        return [line.paged for line in self.all_lines() if line.paged.count != 0]

    def put_back(self, message: Message) -> None:
        """Return a message that was taken: to its place, or to the line served first."""
        self.count += 1
        self.body_bytes += len(message.body)
        if message.expires_ms != 0:
            self.mortal = True
        if self.returns_first:
            self.returns += 1
            self.back.append(message)
        elif self.prioritised:
            self._level(message.priority).put_back(message)
        else:
            self.line.put_back(message)

    def head(self) -> Message:
        """The next message, which stays; there is one."""
        return self._at_hand(self._next_line()).head()

    def pop(self) -> Message:
        """Take the next message; there is one."""
        if self.prioritised or self.returns_first:
            message = self._at_hand(self._next_line()).pop()
        else:
            message = self._at_hand(self.line).pop()
        self.count -= 1
        self.body_bytes -= len(message.body)
        return message

    def _at_hand(self, line: Line) -> Line:
        """The line with its next message in memory.

        Where the log is damaged the messages that stand there are set aside: they are no longer
        counted, and Corrupt is raised. Whoever asks again finds what is left.
        """
        if not line.needs_page():
            return line
        pages = self.pages
        assert pages is not None
        try:
            for message in pages.read(line.paged):
                line.append(message)
        except Corrupt:
            self._set_aside(line.paged, pages.unreadable(line.paged.runs[0]))
            raise
        return line

    def _set_aside(self, paged: Runs, count: i64) -> None:
        """Keep apart what cannot be read. Sizes of bodies are not known here: their mean counts."""
        in_log = self.body_bytes - self._bytes_at_hand()
        paged_count: i64 = 0
        for line in self.all_lines():
            paged_count += line.paged.count
        self.body_bytes -= in_log * count // paged_count
        self.count -= count
        self.damaged.append(paged.cut(count))

    def _bytes_at_hand(self) -> i64:
        """Bodies in memory."""
        total: i64 = 0
        for message in self.messages():
            total += len(message.body)
        return total

    def pop_expired(self, now_ms: i64) -> Message | None:
        """Take a message that is dead and at the head of its line, if there is one."""
        if not self.mortal:
            return None
        for line in self._expiring_lines():
            if line.is_empty():
                continue
            head = self._at_hand(line).head()
            if head.expires_ms != 0 and head.expires_ms <= now_ms:
                line.pop()
                self.count -= 1
                self.body_bytes -= len(head.body)
                return head
        return None

    def next_expiry_ms(self) -> i64:
        """The earliest expiry among the heads of the lines; 0 = none."""
        earliest: i64 = 0
        if not self.mortal:
            return earliest
        for line in self._expiring_lines():
            if line.is_empty():
                continue
            due = self._at_hand(line).head().expires_ms
            if due != 0 and (earliest == 0 or due < earliest):
                earliest = due
        return earliest

    def memory_bytes(self) -> i64:
        """What the lines take in memory, about: messages with their bodies, and positions."""
        total: i64 = 0
        for line in self.all_lines():
            in_memory: i64 = len(line.fresh) - line.at + len(line.returned)
            total += line.fresh_bytes + in_memory * MESSAGE_BYTES + line.paged.count * RUN_BYTES
            for _, message in line.returned:
                total += len(message.body)
        return total

    def messages(self) -> list[Message]:
        """All messages in memory, in the order of delivery, without taking them."""
        listed = self.back.messages()
        for line in self.all_lines():
            if line is not self.back:
                listed.extend(line.messages())
        return listed

    def messages_held(self) -> list[object]:
        """All messages in no order, so that they can be freed in slices."""
        held: list[object] = []
        for line in self.all_lines():
            held.extend(line.fresh)
            held.extend(line.returned)
        return held

    def oldest_rank(self) -> i64:
        """The least rank among the heads of the lines; -1 = nothing is ready."""
        oldest: i64 = -1
        for line in self.all_lines():
            rank = line.head_rank()
            if rank >= 0 and (oldest < 0 or rank < oldest):
                oldest = rank
        return oldest

    def _expiring_lines(self) -> list[Line]:
        """Whose heads may expire. RabbitMQ: on classic queues only the head of the whole queue."""
        if self.returns_first:
            return self.all_lines()
        return [self._next_line()] if self.count != 0 else []

    def all_lines(self) -> list[Line]:
        """Every line, in the order in which they are served; some may be empty."""
        if self.prioritised:
            lines = [self.lines[-level] for level in sorted(self.levels)]
        else:
            lines = [self.line]
        if self.returns_first:
            lines.insert(0, self.back)
        return lines

    def _next_line(self) -> Line:
        """The line that is served next; there is a message."""
        if self.returns_first and not self.back.is_empty():
            return self.back
        if not self.prioritised:
            return self.line
        line = self.lines[-self.levels[0]]
        while line.is_empty():
            del self.lines[-heappop(self.levels)]
            line = self.lines[-self.levels[0]]
        return line

    def _level(self, priority: int) -> Line:
        line = self.lines.get(priority)
        if line is None:
            line = Line()
            self.lines[priority] = line
            heappush(self.levels, -priority)
        return line
