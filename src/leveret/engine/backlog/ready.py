"""The ready messages of a queue, in the order in which they will be delivered.

- A queue without priorities has one `Line`.
- A queue with priorities has a `Line` for each priority in use, highest first. Priorities may be
  any numbers: finding the highest costs O(log n) of the priorities in use.
- Where the keys of one priority take turns, each key has a line (`FairLines`).
- RabbitMQ 4.3: quorum queues serve returned messages first, whatever their priority. With
  `returns_first` they are in the line `back`.
- A line that gets many messages back keeps a window of them in memory. Others are in its
  `paged_returns`: lines whose messages are in the log alone, each in order of rank. The next
  message is the oldest of all these lines. Only `back` serves its paged returns one after the
  other: messages that came back first are served first, a window at a time.

Invariants: `count` and `body_bytes` are the sums over all lines; `levels` holds each key of `lines`
once. A line may stay empty until its priority is the highest.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.fair_lines import FairLines, fair_key
from leveret.engine.backlog.line import Line
from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun, PagedRuns
from leveret.engine.message import LOGGED, Message
from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE

WINDOW: Final = 8192  # messages of a line in memory; further messages stay in the log
LAZY_WINDOW: Final = 64  # the same for a lazy queue

MESSAGE_BYTES: Final = 250  # a message in memory without header and body: object, list slots
RUN_BYTES: Final = 12  # a message that is only a position in the log


class Ready:
    """All lines of a queue, and their totals."""

    def __init__(self, *, prioritised: bool, returns_first: bool) -> None:
        self.count: i64 = 0
        self.body_bytes: i64 = 0
        self.prioritised = prioritised
        self.returns_first = returns_first
        self.line = Line()  # the only line of a queue without priorities
        self.back = Line()  # returned messages, with `returns_first`
        self.levels: list[int] = []  # heap of the priorities in use, negated: the highest is first
        self.lines: dict[int, Line] = {}  # by priority
        self.has_expiring = False  # a message with an expiry has been here
        self.window: i64 = WINDOW
        self.damaged: list[PagedRun] = []  # unreadable messages, not in `count`
        self.pages: QueuePageReader | None = None  # None without a log
        self.returns: i64 = 0  # messages that were put into `back` so far
        self._paged_returns_made: i64 = 0
        self.fair_lines: FairLines | None = None  # None until a queue has fair keys

    def push(self, message: Message) -> None:
        """Add a message at the end of its line."""
        if message.expires_ms != 0:
            self.has_expiring = True
        line = self._line_of(message) if self.prioritised else self.line
        if message.position != NOWHERE and line.is_full(self.window):
            line.paged.add(message.seq, message.position)
        else:
            line.append(message)
        self.count += 1
        self.body_bytes += len(message.body)

    def is_full(self, priority: i64) -> bool:
        """Return True if the next new message of this priority belongs in the log."""
        line = self._level(priority) if self.prioritised else self.line
        return line.is_full(self.window)

    def add_run(self, priority: i64, run: PagedRun) -> None:
        """Add paged messages; the caller adds their bytes to `body_bytes`."""
        line = self._level(priority) if self.prioritised else self.line
        line.paged.runs.append(run)
        line.paged.count += run.left()
        self.count += run.left()

    def damaged_count(self) -> i64:
        """Return how many messages cannot be read."""
        count: i64 = 0
        for run in self.damaged:
            count += run.left()
        return count

    def paged_runs(self) -> list[PagedRun]:
        """Return the runs of paged messages of all lines."""
        return [run for line in self.all_lines() for run in line.paged.runs]

    def paged_lines(self) -> list[PagedRuns]:
        """Return the paged messages of each line that has some."""
        return [line.paged for line in self.all_lines() if line.paged.count != 0]

    def put_back(self, message: Message) -> None:
        """Put back a message that was taken: at its original place, or into `back`."""
        if message.expires_ms != 0:
            self.has_expiring = True
        self.count += 1
        self.body_bytes += len(message.body)
        if self.returns_first:
            self.returns += 1
            self.back.append(message)
            is_logged = message.flags & LOGGED != 0
            if is_logged and self.back.is_full(self.window) and self.pages is not None:
                self._page_out(self.back, self.back.take_fresh(), self.pages)
            return
        line = self._line_of(message) if self.prioritised else self.line
        line.put_back(message)
        if line.has_long_return(self.window) and self.pages is not None:
            self._page_out(line, line.take_returned(), self.pages)
            line.kept = len(line.returned)
            line.kept_bytes = line.returned_bytes

    def _page_out(self, line: Line, messages: list[Message], pages: QueuePageReader) -> None:
        """Forget the bodies of returned messages that the log holds, as after a publish.

        Transient messages stay in memory. The ledger keeps the numbers of returns and failures.
        """
        messages.sort(key=_rank)
        part = Line()
        for message in messages:
            if message.flags & LOGGED:
                part.paged.add(message.seq, pages.current_position(message))
            elif self.returns_first:
                line.append(message)
            else:
                line.put_back(message)
        if part.paged.count != 0:
            self._paged_returns_made += 1
            part.number = self._paged_returns_made
            if line.paged_returns is None:
                line.paged_returns = []
            line.paged_returns.append(part)

    def head(self) -> Message:
        """Return the next message without taking it; there must be one."""
        return self._at_hand(self._next_line()).head()

    def pop(self) -> Message:
        """Take the next message; there must be one."""
        if self.prioritised or self.returns_first or self.line.paged_returns is not None:
            message = self._at_hand(self._next_line()).pop()
            if self.fair_lines is not None:
                self.fair_lines.pass_on(message.priority)
        else:
            message = self._at_hand(self.line).pop()
        self.count -= 1
        self.body_bytes -= len(message.body)
        return message

    def _at_hand(self, line: Line) -> Line:
        """Return the line after reading its next message into memory, if needed.

        Raise CorruptionError if the log is damaged there. The unreadable messages are moved to
        `damaged` first, so that a second call goes on with the messages after them.
        """
        if not line.needs_page():
            return line
        pages = self.pages
        assert pages is not None
        try:
            messages = pages.read(line.paged)
            line.mark_returns(messages)
            for message in messages:
                line.append(message)
        except CorruptionError:
            self._set_aside(line.paged, pages.unreadable(line.paged.runs[0]))
            raise
        return line

    def _set_aside(self, paged: PagedRuns, count: i64) -> None:
        """Move unreadable messages to `damaged`.

        The sizes of their bodies are unknown: the mean size of paged bodies is subtracted instead.
        """
        in_log = self.body_bytes - self._bytes_at_hand()
        paged_count: i64 = 0
        for line in self.all_lines():
            paged_count += line.paged.count
        self.body_bytes -= in_log * count // paged_count
        self.count -= count
        self.damaged.append(paged.cut(count))

    def _bytes_at_hand(self) -> i64:
        """Return the body bytes of the messages in memory."""
        total: i64 = 0
        for message in self.messages():
            total += len(message.body)
        return total

    def pop_expired(self, now_ms: i64) -> Message | None:
        """Take an expired message at the head of a line; None if there is none."""
        if not self.has_expiring:
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
        """Return the earliest expiry among the heads of the lines; 0 = none."""
        earliest: i64 = 0
        if not self.has_expiring:
            return earliest
        for line in self._expiring_lines():
            if line.is_empty():
                continue
            due = self._at_hand(line).head().expires_ms
            if due != 0 and (earliest == 0 or due < earliest):
                earliest = due
        return earliest

    def memory_bytes(self) -> i64:
        """Estimate the memory of the lines: messages with headers and bodies, and positions."""
        total: i64 = 0
        for line in self.all_lines():
            in_memory: i64 = len(line.fresh) - line.at + len(line.returned)
            total += line.fresh_bytes + line.returned_bytes + in_memory * MESSAGE_BYTES
            total += line.paged.count * RUN_BYTES
        return total

    def messages(self) -> list[Message]:
        """Return all messages in memory, in the order of delivery, without taking them."""
        listed: list[Message] = []
        for line in self.all_lines():
            listed.extend(line.messages())
        return listed

    def messages_held(self) -> list[object]:
        """Return all objects in the lines in any order, for `LazyFree`."""
        held: list[object] = []
        for line in self.all_lines():
            held.extend(line.fresh)
            held.extend(line.returned)
        return held

    def oldest_rank(self) -> i64:
        """Return the lowest rank among the heads of the lines; -1 = nothing is ready."""
        oldest: i64 = -1
        for line in self.all_lines():
            rank = line.head_rank()
            if rank >= 0 and (oldest < 0 or rank < oldest):
                oldest = rank
        return oldest

    def _expiring_lines(self) -> list[Line]:
        """Return the lines whose heads can expire.

        RabbitMQ: in a classic queue only the head of the whole queue expires.
        """
        if self.returns_first:
            return self.all_lines()
        return [self._next_line()] if self.count != 0 else []

    def all_lines(self) -> list[Line]:
        """Return every line in the order in which they are served; some may be empty."""
        lines: list[Line] = self.back.with_returns() if self.returns_first else []
        if not self.prioritised:
            lines.extend(self.line.with_returns())
            return lines
        for level in sorted(self.levels):
            lines.extend(self.lines_at(-level))
        return lines

    def _next_line(self) -> Line:
        """Return the line that is served next; there must be a message."""
        if self.returns_first and not self.back.is_used_up():
            return self._part_of(self.back)
        if not self.prioritised:
            return self._part_of(self.line)
        if self.fair_lines is not None:
            return self._part_of(self._next_fair_line(self.fair_lines))
        line = self.lines[-self.levels[0]]
        while line.is_used_up():
            del self.lines[-heappop(self.levels)]
            line = self.lines[-self.levels[0]]
        return self._part_of(line)

    def _part_of(self, line: Line) -> Line:
        """Return the line itself or the one of its paged returns that is served next."""
        returns = line.paged_returns
        if returns is None:
            return line
        if line is self.back:
            while returns and returns[0].is_empty():
                returns.pop(0)
        else:
            returns = [part for part in returns if not part.is_empty()]
        line.paged_returns = returns if returns else None
        if line is self.back and returns:
            return returns[0]
        oldest = line
        lowest = oldest.head_rank()
        for part in returns:
            rank = part.head_rank()
            if lowest < 0 or rank < lowest:
                oldest = part
                lowest = rank
        return oldest

    def _next_fair_line(self, fair_lines: FairLines) -> Line:
        """Return the line that is served next in a queue with fair keys."""
        while True:
            priority = -self.levels[0]
            line = fair_lines.next(priority, self.lines[priority])
            if line is not None:
                return line
            del self.lines[-heappop(self.levels)]

    def open_fair_lines(self) -> None:
        """Let the keys of each priority take turns from now on.

        Messages that are here already stay in the plain line of their priority.
        """
        assert self.prioritised
        if self.fair_lines is None:
            self.fair_lines = FairLines()

    def lines_at(self, priority: int) -> list[Line]:
        """Return the lines of a priority that is in use, with their paged returns."""
        found = self.lines[priority].with_returns()
        if self.fair_lines is not None:
            for fair_line in self.fair_lines.at(priority):
                found.extend(fair_line.line.with_returns())
        return found

    def _line_of(self, message: Message) -> Line:
        """Return the line to which a message belongs."""
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


def _rank(message: Message) -> int:
    return message.rank
