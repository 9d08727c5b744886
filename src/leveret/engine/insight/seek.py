"""Find the next messages after a key, in the structures of a queue, without changing them.

Every structure of a queue is in the order of some key, or is a heap of keys. A walk that remembers
its last key continues here, whatever has happened meanwhile, without passing all earlier messages:
by binary search, and in heaps by descending from the top. The part of a heap before the key must be
passed, so a step through many returned messages costs O(those already seen). Everything else costs
O(log n) and the messages that are taken.
"""

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.ready import Ready
from leveret.engine.backlog.unacked import Unacked
from leveret.engine.message import Message

BEFORE_ALL: Final = -(1 << 62)  # smaller than every key
_LEVEL: Final = 1 << 30  # distance between the keys of two priorities
# The keys of paged returns are this much below the key of the line to which they belong.
_PAGED_RETURNS: Final = 1 << 29
BACK: Final = BEFORE_ALL + _LEVEL  # the line of returned messages, before all priorities


def line_groups(ready: Ready, order: i64) -> list[int]:
    """Return the keys of the groups of lines, without those whose lines all come before an order.

    A group is the lines of one priority, or the line of returned messages. The paged returns of all
    lines of one priority are together: fair keys take turns anyway.
    """
    keys: list[int] = [BACK] if ready.returns_first else []
    if ready.prioritised:
        levels = sorted(ready.levels)
        first = bisect_left(levels, (order + _PAGED_RETURNS) // _LEVEL)
        keys.extend([level * _LEVEL for level in levels[first:]])
    else:
        keys.append(0)
    return keys


def lines_of_group(ready: Ready, key: int) -> list[tuple[int, Line]]:
    """Return the lines of a group with their orders, in the order in which they are served."""
    lines: list[tuple[int, Line]] = []
    if key == BACK:
        _add_lines(BACK, [(0, ready.back)], lines)
    elif not ready.prioritised:
        _add_lines(0, [(0, ready.line)], lines)
    else:
        level = key // _LEVEL
        numbered: list[tuple[int, Line]] = [(0, ready.lines[-level])]
        if ready.fair_lines is not None:
            numbered.extend([(fair.number, fair.line) for fair in ready.fair_lines.at(-level)])
        _add_lines(key, numbered, lines)
    return lines


def _add_lines(key: int, numbered: list[tuple[int, Line]], lines: list[tuple[int, Line]]) -> None:
    """Add lines under the key of their priority, after their paged returns."""
    returns: list[tuple[int, Line]] = []
    for _, line in numbered:
        if line.paged_returns is not None:
            returns.extend([(part.number, part) for part in line.paged_returns])
    returns.sort(key=_number)
    lines.extend([(key - _PAGED_RETURNS + number, part) for number, part in returns])
    lines.extend([(key + number, line) for number, line in numbered])


def _number(numbered: tuple[int, Line]) -> int:
    return numbered[0]


def came_back_after(ready: Ready, number: i64, most: i64) -> list[Message]:
    """Return the next messages of the line of returned messages, after a number.

    They are numbered from 0 as they came back. They leave at the front, so the number of the last
    one gives the numbers of the others.
    """
    line = ready.back
    index = max(len(line.fresh) - (ready.returns - 1 - number), line.at)
    return [m for m in line.fresh[index : index + most] if m is not None]


def number_of_first(ready: Ready, number: i64) -> i64:
    """Return the number of the first message that `came_back_after` finds."""
    line = ready.back
    return max(number + 1, ready.returns - (len(line.fresh) - line.at))


def messages_after(line: Line, rank: i64, most: i64) -> list[Message]:
    """Return the next messages of a line that are in memory, after a rank."""
    fresh = line.fresh
    low = line.at
    high: i64 = len(fresh)
    while low < high:
        middle = (low + high) // 2
        message = fresh[middle]
        assert message is not None
        if message.rank <= rank:
            low = middle + 1
        else:
            high = middle
    found = [m for m in fresh[low : low + most] if m is not None]
    if line.returned:
        found.extend(_returned_after(line.returned, rank, most))
        found.sort(key=_rank)
        return found[:most]
    return found


def _rank(message: Message) -> int:
    return message.rank


def _returned_after(heap: list[tuple[int, Message]], rank: i64, most: i64) -> list[Message]:
    """Return the next messages of a heap, after a rank."""
    heads: list[tuple[int, int]] = []  # the next message of each branch: rank, index
    passed: list[int] = [0]
    while passed:
        index = passed.pop()
        if index >= len(heap):
            continue
        if heap[index][0] > rank:
            heads.append((heap[index][0], index))
        else:
            passed.append(2 * index + 1)
            passed.append(2 * index + 2)
    heapify(heads)
    found: list[Message] = []
    while heads and len(found) < most:
        index = heappop(heads)[1]
        found.append(heap[index][1])
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(heads, (heap[child][0], child))
    return found


def run_after(line: Line, seq: i64) -> PagedRun | None:
    """Return a view of the next messages of a line that are in the log alone."""
    runs = line.paged.runs
    low: i64 = 0
    high: i64 = len(runs)
    while low < high:
        middle = (low + high) // 2
        if i64(runs[middle].seqs[-1]) <= seq:
            low = middle + 1
        else:
            high = middle
    if low == len(runs):
        return None
    run = runs[low]
    at: i64 = bisect_right(run.seqs, seq, run.at)
    return run.view_last(len(run.seqs) - at)


def count_through(run: PagedRun, count: i64, seq: i64) -> i64:
    """Return how many of the next `count` messages of a run go up to a sequence number."""
    through: i64 = bisect_right(run.seqs, seq, run.at, run.at + count)
    return through - run.at


def held_after(unacked: Unacked, tag: i64, slot: i64, most: i64) -> tuple[list[Message], i64]:
    """Return the messages of a queue among the next deliveries, and the last tag examined.

    That tag is the given one if there are no more deliveries.
    """
    found: list[Message] = []
    last = tag
    left = most
    if unacked.stragglers and tag < unacked.base:
        for old in sorted(unacked.stragglers):
            if old > tag and left > 0:
                _take_held(unacked.stragglers[old], slot, found)
                last = old
                left -= 1
    ring = unacked.ring
    index = max(unacked.head, last - unacked.base)
    end = min(index + left, len(ring))
    while index < end:
        message = ring[index]
        if message is not None:
            _take_held(message, slot, found)
        index += 1
        last = unacked.base + index
    return found, last


def _take_held(message: Message, slot: i64, found: list[Message]) -> None:
    if message.queue == slot:
        found.append(message)
