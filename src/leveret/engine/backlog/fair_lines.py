"""Fair lines: the ready messages of one priority, grouped by key, so that the keys take turns.

A message names its key in the header `x-job-fair-key`. Each key with ready messages in a priority
has a fair line. Messages without a key are in the plain line of their priority, which takes its
turn like a fair line.

The line that was served goes to the end of the rotation, and a new line joins at the end. So a new
key waits for at most one message of each other key, however long their lines are. An empty line is
dropped when its turn comes, so that only keys with ready messages take memory. Every step is O(1).

Invariant: a fair line with a message is in the rotation of its priority exactly once.
"""

from collections import deque
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.wire.properties import parse_traits
from leveret.wire.scan import find_entry
from leveret.wire.tables import decode_field

FAIR_KEY: Final = b"x-job-fair-key"
PLAIN: Final = b""  # stands for the key of messages without a key


class FairLine:
    """The ready messages of one key in one priority."""

    def __init__(self, key: bytes, number: i64, line: Line) -> None:
        self.key = key
        self.number = number  # order of creation; 0 for the plain line
        self.line = line


class FairLines:
    """All fair lines of a queue, and whose turn it is in each priority."""

    def __init__(self) -> None:
        self._rotations: dict[int, deque[FairLine]] = {}  # by priority; the next line is first
        self._lines: dict[tuple[int, bytes], FairLine] = {}  # by priority and key
        self._made: i64 = 0

    def line(self, priority: int, key: bytes) -> Line:
        """Return the line of a key; create it if needed, because a message will be added."""
        fair_line = self._lines.get((priority, key))
        if fair_line is None:
            self._made += 1
            fair_line = FairLine(key, self._made, Line())
            self._join(priority, fair_line)
        return fair_line.line

    def _join(self, priority: int, fair_line: FairLine) -> None:
        self._lines[(priority, fair_line.key)] = fair_line
        rotation = self._rotations.get(priority)
        if rotation is None:
            rotation = deque()
            self._rotations[priority] = rotation
        rotation.append(fair_line)

    def next(self, priority: int, plain: Line) -> Line | None:
        """Return the line whose turn it is, and keep its turn; None if the priority is empty."""
        if not plain.is_used_up() and (priority, PLAIN) not in self._lines:
            self._join(priority, FairLine(PLAIN, 0, plain))
        rotation = self._rotations.get(priority)
        if rotation is None:
            return None
        while rotation:
            fair_line = rotation[0]
            if not fair_line.line.is_used_up():
                return fair_line.line
            rotation.popleft()
            del self._lines[(priority, fair_line.key)]
        del self._rotations[priority]
        return None

    def pass_on(self, priority: int) -> None:
        """Move the line that was served to the end of the rotation."""
        self._rotations[priority].rotate(-1)

    def at(self, priority: int) -> list[FairLine]:
        """Return the fair lines of a priority without the plain line, in order of creation."""
        rotation = self._rotations.get(priority)
        if rotation is None:
            return []
        fair_lines = [fair_line for fair_line in rotation if fair_line.key != PLAIN]
        fair_lines.sort(key=_number)
        return fair_lines


def _number(fair_line: FairLine) -> int:
    return fair_line.number


def fair_key(header: bytes) -> bytes:
    """Return the fair key in a content header; PLAIN if there is none."""
    traits = parse_traits(header)
    at = find_entry(header, traits.headers_at, traits.headers_end, FAIR_KEY)
    if at < 0:
        return PLAIN
    value = decode_field(header, at, traits.headers_end).value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else PLAIN
