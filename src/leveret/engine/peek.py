"""A look at the ready messages of a queue, in the order of delivery, that changes nothing.

Messages in memory are shown as they are and must not be changed; those that are in the log alone
are read into objects of their own. What cannot be read is passed over: it is set aside when its
turn comes, not by a look.
"""

from mypy_extensions import i64

from leveret.engine.message import Message
from leveret.engine.queue import Queue
from leveret.engine.ready import Line, Ready
from leveret.engine.runs import QueuePages, Run
from leveret.errors import Corrupt


def peek(queue: Queue, count: i64, bytes_max: i64, from_end: bool = False) -> list[Message]:
    """The first messages of a queue, or its last; fewer if their bodies are too many bytes."""
    if from_end:
        found = _last(queue.ready, count)
        found.reverse()
    else:
        found = _first(queue.ready, count, bytes_max)
    kept = _within(found, bytes_max)
    if from_end:
        kept.reverse()
    return kept


def _within(messages: list[Message], bytes_max: i64) -> list[Message]:
    """The first of the messages, at least one, up to so many bytes."""
    total: i64 = 0
    index: i64 = 0
    for message in messages:
        total += len(message.body)
        if total > bytes_max and index != 0:
            break
        index += 1
    return messages[:index]


def _first(ready: Ready, count: i64, bytes_max: i64) -> list[Message]:
    found: list[Message] = []
    total: i64 = 0
    for line in ready.all_lines():
        found.extend(line.messages())
        if len(found) >= count:
            break
        pages = ready.pages
        for run in line.paged.runs:
            view = run.rest(run.left())
            while view.left() > 0 and len(found) < count and total <= bytes_max:
                assert pages is not None
                messages = read_on(pages, view)
                for message in messages:
                    total += len(message.body)
                found.extend(messages)
    return found[:count]


def read_on(pages: QueuePages, view: Run) -> list[Message]:
    """The next messages of a view, which is moved on; nothing where they cannot be read."""
    try:
        messages = pages.peek(view)
    except Corrupt:
        view.at += pages.unreadable(view)
        return []
    view.at += len(messages)
    return messages


def _last(ready: Ready, count: i64) -> list[Message]:
    found: list[Message] = []
    lines = ready.all_lines()
    lines.reverse()
    for line in lines:
        left = count - len(found)
        if left <= 0:
            break
        found = _last_of(line, left, ready.pages) + found
    return found


def _last_of(line: Line, count: i64, pages: QueuePages | None) -> list[Message]:
    found: list[Message] = []
    for index in range(len(line.paged.runs) - 1, -1, -1):
        left = count - len(found)
        if left <= 0:
            break
        assert pages is not None
        run = line.paged.runs[index]
        view = run.rest(min(left, run.left()))
        part: list[Message] = []
        while view.left() > 0:
            part.extend(read_on(pages, view))
        found = part + found
    left = count - len(found)
    if left > 0:
        found = line.messages()[-left:] + found
    return found
