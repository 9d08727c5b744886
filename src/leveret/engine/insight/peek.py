"""Read ready messages of a queue in the order of delivery, without changing anything.

Messages in memory are the queue's own and must not be changed. Messages in the log alone are read
into new objects, and only those that are returned. Unreadable messages are skipped: the queue sets
them aside when their turn comes. A peek is the work of one turn. For more than a page of messages,
and for other states, see `leveret.engine.insight.walk`.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.backlog.ready import Ready
from leveret.engine.insight.locating import line_count
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.errors import CorruptionError

_PAGE: Final = 256  # messages that `_mixed` reads before it looks at their size


def peek(
    queue: Queue, count: i64, bytes_max: i64, from_end: bool = False, offset: i64 = 0
) -> list[Message]:
    """Return the first or the last messages of a queue, with at most `bytes_max` body bytes.

    `offset` messages are skipped first, from the front or from the end.
    """
    ready = queue.ready
    if not from_end:
        return _within(_first(ready, offset, count, bytes_max), bytes_max)
    end = max(ready.count - offset, 0)
    start = max(end - count, 0)
    found = _first(ready, start, end - start, 1 << 62)
    found.reverse()
    kept = _within(found, bytes_max)
    kept.reverse()
    return kept


def _within(messages: list[Message], bytes_max: i64) -> list[Message]:
    """Return the first messages, at least one, up to `bytes_max` body bytes."""
    total: i64 = 0
    index: i64 = 0
    for message in messages:
        total += len(message.body)
        if total > bytes_max and index != 0:
            break
        index += 1
    return messages[:index]


def _first(ready: Ready, offset: i64, count: i64, bytes_max: i64) -> list[Message]:
    """Return the messages from an offset on, until `count` or `bytes_max` is reached."""
    found: list[Message] = []
    total: i64 = 0
    for line in ready.all_lines():
        if line.number != 0 and line not in ready.back.with_returns():
            continue  # `_mixed` shows it with the line to which it belongs
        if line.paged_returns is not None and line is not ready.back:
            mixed = _mixed(ready, line, offset, count - len(found), bytes_max - total)
            for message in mixed:
                total += len(message.body)
            found.extend(mixed)
            for part in line.with_returns():
                offset -= line_count(part)
            offset = max(offset, 0)
            if len(found) >= count:
                break
            continue
        in_memory = _memory_count(line)
        if offset < in_memory:
            found.extend(line.messages()[offset : offset + count - len(found)])
        offset = max(offset - in_memory, 0)
        for run in line.paged.runs:
            if offset >= run.left():
                offset -= run.left()
                continue
            view = run.view_last(run.left() - offset)
            offset = 0
            while view.left() > 0 and len(found) < count and total <= bytes_max:
                assert ready.pages is not None
                messages = read_on(ready.pages, view)
                line.mark_returns(messages)
                for message in messages:
                    total += len(message.body)
                    found.append(message)
        if len(found) >= count:
            break
    return found[:count]


def _mixed(ready: Ready, line: Line, offset: i64, count: i64, bytes_max: i64) -> list[Message]:
    """Return messages of a line and of its paged returns, which are delivered by rank."""
    ranks: list[int] = []
    most = offset + count
    for part in line.with_returns():
        own: list[int] = [m.rank for m in part.messages()]
        for run in part.paged.runs:
            if len(own) < most:
                own.extend(run.seqs[run.at : run.at + most - len(own)])
        ranks.extend(own[:most])
    ranks.sort()
    wanted = ranks[offset:most]
    found: list[Message] = []
    total: i64 = 0
    first: i64 = 0
    while first < len(wanted) and total <= bytes_max:
        page = _of_ranks(ready, line, wanted[first : first + _PAGE])
        for message in page:
            total += len(message.body)
        found.extend(page)
        first += _PAGE
    return found


def _of_ranks(ready: Ready, line: Line, ranks: list[int]) -> list[Message]:
    """Return the messages of a line and of its paged returns that have these ranks."""
    wanted = set(ranks)
    found: list[Message] = []
    for part in line.with_returns():
        found.extend([m for m in part.messages() if m.rank in wanted])
        for run in part.paged.runs:
            view = run.select(run.places_of(ranks))
            while view.left() > 0:
                assert ready.pages is not None
                messages = read_on(ready.pages, view)
                part.mark_returns(messages)
                found.extend(messages)
    found.sort(key=_rank)
    return found


def _rank(message: Message) -> int:
    return message.rank


def _memory_count(line: Line) -> i64:
    return len(line.fresh) - line.at + len(line.returned)


def read_on(pages: QueuePageReader, view: PagedRun) -> list[Message]:
    """Return the next messages of a view and move it on. Unreadable messages are skipped."""
    try:
        messages = pages.peek(view)
    except CorruptionError:
        view.at += pages.unreadable(view)
        return []
    view.at += len(messages)
    return messages
