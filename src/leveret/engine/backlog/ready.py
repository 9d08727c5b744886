"""Ready messages, in the order in which they will be delivered.

`Ready` is a `Line` for each priority in use, highest first; a queue without priorities has just one
line. Where the messages of one priority have keys that take turns, each key has a line of its own
(`FairLines`).

Quorum queues serve what came back before everything else, whatever its priority (RabbitMQ 4.3):
`returns_first` puts it in a line of its own.

Priorities may be any numbers and many: finding the highest costs O(log n) of those in use.

Invariants: `count` and `body_bytes` are the sums over all lines; `levels` holds each key of `lines`
once. A line may be empty until its priority is the highest.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.fair_lines import FairLines, fair_key
from leveret.engine.backlog.line import Line
from leveret.engine.backlog.paged import PagedRun, PagedRuns, QueuePageReader
from leveret.engine.message import Message
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE

WINDOW: Final = 8192  # messages of a line in memory before further ones are left to the log
LAZY_WINDOW: Final = 64  # the same for a lazy queue

MESSAGE_BYTES: Final = 300  # a message in memory besides its body: object, header, list slots
RUN_BYTES: Final = 12  # a message that is only a position


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
        self.damaged: list[
            PagedRun
        ] = []  # messages that cannot be read: set aside, not counted above
        self.pages: QueuePageReader | None = None  # where there is a log
        self.returns: i64 = 0  # messages that came back to be served first
        self.fair_lines: FairLines | None = None  # lines of keys that take turns, if there are any

    def push(self, message: Message) -> None:
        """Add a message at the end of its priority."""
        self.count += 1
        self.body_bytes += len(message.body)
        if message.expires_ms != 0:
            self.mortal = True
        line = self._line_of(message) if self.prioritised else self.line
        if message.position != NOWHERE and line.is_full(self.window):
            line.paged.add(message.seq, message.position)
        else:
            line.append(message)

    def is_full(self, priority: i64) -> bool:
        """Whether a further message of this priority belongs into the log."""
        line = self._level(priority) if self.prioritised else self.line
        return line.is_full(self.window)

    def add_run(self, priority: i64, run: PagedRun) -> None:
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

    def paged_runs(self) -> list[PagedRun]:
        """Everything that is in the log alone."""
        return [run for line in self.all_lines() for run in line.paged.runs]

    def paged_lines(self) -> list[PagedRuns]:
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
            self._line_of(message).put_back(message)
        else:
            self.line.put_back(message)

    def head(self) -> Message:
        """The next message, which stays; there is one."""
        return self._at_hand(self._next_line()).head()

    def pop(self) -> Message:
        """Take the next message; there is one."""
        if self.prioritised or self.returns_first:
            message = self._at_hand(self._next_line()).pop()
            if self.fair_lines is not None:
                self.fair_lines.pass_on(message.priority)
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
        except CorruptionError:
            self._set_aside(line.paged, pages.unreadable(line.paged.runs[0]))
            raise
        return line

    def _set_aside(self, paged: PagedRuns, count: i64) -> None:
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
        lines: list[Line] = []
        if self.prioritised:
            for level in sorted(self.levels):
                lines.extend(self.lines_at(-level))
        else:
            lines.append(self.line)
        if self.returns_first:
            lines.insert(0, self.back)
        return lines

    def _next_line(self) -> Line:
        """The line that is served next; there is a message."""
        if self.returns_first and not self.back.is_empty():
            return self.back
        if not self.prioritised:
            return self.line
        if self.fair_lines is not None:
            return self._next_fair_line(self.fair_lines)
        line = self.lines[-self.levels[0]]
        while line.is_empty():
            del self.lines[-heappop(self.levels)]
            line = self.lines[-self.levels[0]]
        return line

    def _next_fair_line(self, lanes: FairLines) -> Line:
        """The same where keys take turns."""
        while True:
            priority = -self.levels[0]
            line = lanes.next(priority, self.lines[priority])
            if line is not None:
                return line
            del self.lines[-heappop(self.levels)]

    def open_fair_lines(self) -> None:
        """From now on the keys of each priority take turns. What is there is one turn's."""
        assert self.prioritised
        if self.fair_lines is None:
            self.fair_lines = FairLines()

    def lines_at(self, priority: int) -> list[Line]:
        """The lines of a priority that is in use."""
        found = [self.lines[priority]]
        if self.fair_lines is not None:
            found.extend([lane.line for lane in self.fair_lines.at(priority)])
        return found

    def _line_of(self, message: Message) -> Line:
        """Where a message belongs."""
        line = self._level(message.priority)
        if self.fair_lines is not None:
            key = fair_key(message.header)
            if key:
                return self.fair_lines.line(message.priority, key)
        return line

    def _level(self, priority: int) -> Line:
        line = self.lines.get(priority)
        if line is None:
            line = Line()
            self.lines[priority] = line
            heappush(self.levels, -priority)
        return line
