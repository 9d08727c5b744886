"""Lanes: the messages of one priority by key, so that the keys take turns.

A message names its key by a header. Each key that has something ready in a priority has a lane, a
line of its own; messages without a key are in the plain line of their priority, which takes its
turn like a lane. The lane that is served goes to the end of the rotation, one that gets its first
message joins there: whoever comes waits for no more messages than there are other keys, however
long their lines are. A lane that is empty is forgotten when its turn comes, so that memory is taken
by keys with something to do alone. Every step is O(1).

Invariant: a lane with a message is in the rotation of its priority, once.
"""

from collections import deque
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.wire.properties import parse_traits
from leveret.wire.scan import find_entry
from leveret.wire.tables import decode_field

FAIR_KEY: Final = b"x-job-fair-key"
PLAIN: Final = b""  # the key of messages that name none


class FairLine:
    """What is ready of one key."""

    def __init__(self, key: bytes, number: i64, line: Line) -> None:
        self.key = key
        self.number = number  # in the order in which lanes were made; the plain line's is 0
        self.line = line


class FairLines:
    """The lanes of a queue."""

    def __init__(self) -> None:
        self._rotations: dict[int, deque[FairLine]] = {}  # by priority; the next one is first
        self._lanes: dict[tuple[int, bytes], FairLine] = {}
        self._made: i64 = 0

    def line(self, priority: int, key: bytes) -> Line:
        """The line of a key, which is going to get a message."""
        lane = self._lanes.get((priority, key))
        if lane is None:
            self._made += 1
            lane = FairLine(key, self._made, Line())
            self._join(priority, lane)
        return lane.line

    def _join(self, priority: int, lane: FairLine) -> None:
        self._lanes[(priority, lane.key)] = lane
        rotation = self._rotations.get(priority)
        if rotation is None:
            rotation = deque()
            self._rotations[priority] = rotation
        rotation.append(lane)

    def next(self, priority: int, plain: Line) -> Line | None:
        """The line whose turn it is, and stays; None where the priority has no message."""
        if not plain.is_empty() and (priority, PLAIN) not in self._lanes:
            self._join(priority, FairLine(PLAIN, 0, plain))
        rotation = self._rotations.get(priority)
        if rotation is None:
            return None
        while rotation:
            lane = rotation[0]
            if not lane.line.is_empty():
                return lane.line
            rotation.popleft()
            del self._lanes[(priority, lane.key)]
        del self._rotations[priority]
        return None

    def pass_on(self, priority: int) -> None:
        """The one whose turn it was has been served."""
        self._rotations[priority].rotate(-1)

    def at(self, priority: int) -> list[FairLine]:
        """The lanes of a priority besides the plain line, in the order in which they were made."""
        rotation = self._rotations.get(priority)
        if rotation is None:
            return []
        lanes = [lane for lane in rotation if lane.key != PLAIN]
        lanes.sort(key=_number)
        return lanes


def _number(lane: FairLine) -> int:
    return lane.number


def fair_key(header: bytes) -> bytes:
    """The key that a message names in its headers; PLAIN where it names none."""
    traits = parse_traits(header)
    at = find_entry(header, traits.headers_at, traits.headers_end, FAIR_KEY)
    if at < 0:
        return PLAIN
    value = decode_field(header, at, traits.headers_end).value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else PLAIN
