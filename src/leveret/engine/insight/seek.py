"""What follows a key: the next messages of the structures that hold them, which stay as they are.

Every structure of a queue is in the order of some key, or is a heap of them. A walk that remembers
the last key it has seen finds its place again here, whatever has happened meanwhile, without going
through all that comes before: by halving, and in heaps by descending from the top. The part of a
heap before the key has to be passed, so a step through many messages that came back costs O(those
already seen); everything else costs O(log n) and what is taken.
"""

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.ready import Ready
from leveret.engine.backlog.unacked import Unacked
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue

BEFORE_ALL: Final = -(1 << 62)  # less than every key
BACK: Final = BEFORE_ALL + 1  # the line of what came back, before all priorities
_LANES: Final = 1 << 30  # numbers of lanes in one priority


def lines_of(queue: Queue) -> list[tuple[int, Line]]:
    """The lines of a queue with their keys, in the order in which they are served."""
    ready = queue.ready
    lines: list[tuple[int, Line]] = []
    if ready.returns_first:
        lines.append((BACK, ready.back))
    if ready.prioritised:
        for level in sorted(ready.levels):
            lines.append((level * _LANES, ready.lines[-level]))
            if ready.fair_lines is not None:
                lanes = ready.fair_lines.at(-level)
                lines.extend([(level * _LANES + lane.number, lane.line) for lane in lanes])
    else:
        lines.append((0, ready.line))
    return lines


def came_back_after(ready: Ready, number: i64, most: i64) -> list[Message]:
    """The next messages of those that came back, numbered as they came; the first is 0.

    They leave at the front, as a rule: the number of the last is known, and so those of the others.
    """
    line = ready.back
    index = max(len(line.fresh) - (ready.returns - 1 - number), line.at)
    return [m for m in line.fresh[index : index + most] if m is not None]


def number_of_first(ready: Ready, number: i64) -> i64:
    """The number of the first message that `came_back_after` finds."""
    line = ready.back
    return max(number + 1, ready.returns - (len(line.fresh) - line.at))


def messages_after(line: Line, rank: i64, most: i64) -> list[Message]:
    """The next messages of a line that are in memory."""
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
    """The next messages of a heap by rank."""
    heads: list[tuple[int, int]] = []  # what is next of each branch: rank, index
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
    """The next messages of a line that are in the log alone, for reading."""
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
    """How many of the next `count` messages of a run there are up to a number."""
    through: i64 = bisect_right(run.seqs, seq, run.at, run.at + count)
    return through - run.at


def held_after(unacked: Unacked, tag: i64, slot: i64, most: i64) -> tuple[list[Message], i64]:
    """The messages of a queue among the next deliveries, and the last tag that was looked at.

    That is the given one when there are no more.
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
