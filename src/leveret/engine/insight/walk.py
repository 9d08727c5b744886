"""A walk through all messages of a queue, in slices, that changes nothing.

The states follow each other: ready in the order of delivery, scheduled by due time, in flight by
session and delivery tag, then dead letters that nobody takes. Between two slices the queue may
change as it likes. Where the walk stands (`Cursor`) is not a place but the key of the last message
that was looked at, and keys ascend inside a state:

    ready      line (what came back first, then by priority), rank or number
    scheduled  due time, order of arrival
    unacked    connection, channel, delivery tag
    stuck      sequence number
    a stream   offset

So a message that stays in its state is seen once. One that moves on meanwhile (it is delivered) may
be seen in both states; one that moves back (it is requeued, or falls due) may be missed. What comes
to a state after the walk has got there is left out: a walk ends however busy the queue is.

Messages in the log alone are read a page at a time into objects of their own, and only those that
have the bytes that the filter looks for. What cannot be read is passed over.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.backlog.line import Line
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.insight.filters import READY, SCHEDULED, STATES, UNACKED, Filter
from leveret.engine.insight.seek import (
    BACK,
    BEFORE_ALL,
    came_back_after,
    count_through,
    held_after,
    lines_of,
    messages_after,
    number_of_first,
    run_after,
)
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.undelivered_deaths import Stuck
from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Session
from leveret.errors import CorruptionError

NOT_SET: Final = -1
_SESSION_STEP: Final = 64  # what a session without messages of the queue counts for
_AGE_STEP: Final = 1024  # messages whose times are looked at together
_ODD_READ: Final = 8  # what a message that is read by itself counts for


class Cursor:
    """Where a walk stands, and what belongs to it."""

    def __init__(self) -> None:
        self.state: i64 = 0  # index in STATES; behind the last one the walk is over
        self.name = ""  # of the connection, in flight
        self.major: i64 = BEFORE_ALL
        self.minor: i64 = BEFORE_ALL
        # Keys from these on came after the walk had got here; see `enter`
        self.end: i64 = NOT_SET
        self.return_end: i64 = 0  # ready: the same in the line of what came back

    def enter(self, queue: Queue) -> None:
        """The walk gets to a state; in flight every session has an end of its own."""
        state = STATES[self.state]
        if state == READY:
            self.end = queue.end_offset if isinstance(queue, Stream) else queue.next_seq
            self.return_end = queue.ready.returns
        else:
            self.end = queue.scheduled.serial + 1 if state == SCHEDULED else 0

    def leave(self) -> None:
        """There are no more messages of this state."""
        self.state += 1
        self.name = ""
        self.major = BEFORE_ALL
        self.minor = BEFORE_ALL
        self.end = NOT_SET


class Found:
    """A message that was looked for, and where it is."""

    def __init__(self, message: Message, state: str, time_ms: i64) -> None:
        self.message = message  # in memory it is the queue's own: not to be changed
        self.state = state
        # ready, stuck: when it came, 0 = not known; scheduled: when it is due; unacked: when it was
        # delivered
        self.time_ms = time_ms
        self.session: Session | None = None  # who holds it, in flight


class Walk:
    """One walk through one queue.

    `sessions` are all that may hold messages of the queue. A walk that goes on from a cursor finds
    the same as if it had never stopped.
    """

    def __init__(
        self,
        queue: Queue,
        stuck: Stuck,
        wanted: Filter,
        sessions: list[Session],
        cursor: Cursor | None = None,
    ) -> None:
        self.queue = queue
        self.wanted = wanted
        self.cursor = cursor if cursor is not None else Cursor()
        self.scanned: i64 = 0  # messages that were looked at or passed over
        self.found: list[Found] = []
        self._bytes: i64 = 0  # bodies of what was found
        self._stuck = stuck
        self._sessions = sorted(sessions, key=_session_key)
        self._session: i64 = 0  # those before hold nothing that is still to be seen
        self._chunk: Chunk | None = None  # of a stream: the last one that was read
        self._left: i64 = 0
        self._found_max: i64 = 0
        self._bytes_max: i64 = 0

    def is_done(self) -> bool:
        return self.cursor.state >= len(STATES) or self.queue.deleted

    def is_full(self) -> bool:
        """Whether as much was found as was asked for."""
        return len(self.found) >= self._found_max or self._bytes >= self._bytes_max

    def step(self, most: i64, found_max: i64, bytes_max: i64) -> None:
        """Look at about `most` further messages; stop when enough was found.

        At least one page is read. `found` and `scanned` go on from the step before.
        """
        self._left = most
        self._found_max = found_max
        self._bytes_max = bytes_max
        while self._left > 0 and not self.is_done() and not self.is_full():
            state = STATES[self.cursor.state]
            if state not in self.wanted.states or not self._step_in(state):
                self.cursor.leave()

    def _step_in(self, state: str) -> bool:
        """Look at some messages of a state; False when there are no more."""
        queue = self.queue
        if self.cursor.end == NOT_SET:
            self.cursor.enter(queue)
        if state == READY:
            return self._step_stream(queue) if isinstance(queue, Stream) else self._step_ready()
        if state == SCHEDULED:
            return self._step_scheduled()
        if state == UNACKED:
            return self._step_unacked()
        return self._step_stuck()

    def take(self) -> list[Found]:
        """What was found since the last time."""
        found = self.found
        self.found = []
        self._bytes = 0
        return found

    def _look(self, message: Message, state: str, time_ms: i64, came_ms: i64) -> None:
        if self.wanted.matches(message, came_ms, self.queue.turn.now_ms):
            self.found.append(Found(message, state, time_ms))
            self._bytes += len(message.body)

    def _note(self, count: i64) -> None:
        self.scanned += count
        self._left -= count

    # Ready

    def _step_ready(self) -> bool:
        cursor = self.cursor
        for order, line in lines_of(self.queue):
            if order < cursor.major:
                continue
            if order > cursor.major:
                cursor.major = order
                cursor.minor = BEFORE_ALL
            if self._step_back() if order == BACK else self._step_line(line):
                return True
        return False

    def _step_back(self) -> bool:
        """Look at some of what came back to be served first; False when there is no more."""
        cursor = self.cursor
        ready = self.queue.ready
        number = number_of_first(ready, max(cursor.minor, -1))
        for message in came_back_after(ready, max(cursor.minor, -1), self._left):
            if number >= cursor.return_end:
                return False
            cursor.minor = number
            number += 1
            self._look_ready(message)
            if self.is_full():
                return True
        return self._left <= 0

    def _step_line(self, line: Line) -> bool:
        """Look at some messages of a line; False when there are no more."""
        cursor = self.cursor
        messages = messages_after(line, cursor.minor, self._left)
        if not messages:
            return self._step_paged(line)
        for message in messages:
            if message.rank >= cursor.end:
                return False
            cursor.minor = message.rank
            self._look_ready(message)
            if self.is_full():
                break
        return True

    def _look_ready(self, message: Message) -> None:
        self._note(1)
        came_ms = arrived_ms(self.queue, message.seq)
        self._look(message, READY, came_ms, came_ms)

    def _step_paged(self, line: Line) -> bool:
        """Look at a page of what is in the log alone."""
        cursor = self.cursor
        run = run_after(line, cursor.minor)
        if run is None or i64(run.seqs[run.at]) >= cursor.end:
            return False
        pages = self.queue.ready.pages
        assert pages is not None
        if self._is_out_of_age(run):
            return True
        if not pages.prepare(run):
            self._left = 0  # the file is being checked: more in the next slice
            return True
        candidates: list[Message] = []
        try:
            candidates, count = pages.sift(run, self.wanted.needle)
        except CorruptionError:
            count = pages.unreadable(run)
        last: i64 = run.seqs[run.at + count - 1]
        for message in candidates:
            if message.seq >= cursor.end:
                break
            came_ms = arrived_ms(self.queue, message.seq)
            self._look(message, READY, came_ms, came_ms)
            if self.is_full():
                last = message.seq
                break
        cursor.minor = last
        self._note(count_through(run, count, last))
        return True

    def _is_out_of_age(self, run: PagedRun) -> bool:
        """Whether the next messages of a run are all too young or too old: they are passed over."""
        count = min(run.left(), _AGE_STEP)
        last: i64 = run.seqs[run.at + count - 1]
        first_ms = arrived_ms(self.queue, run.seqs[run.at])
        if first_ms == 0:
            return False
        last_ms = arrived_ms(self.queue, last)
        if not self.wanted.excludes(first_ms, last_ms, self.queue.turn.now_ms):
            return False
        self.cursor.minor = last
        self.scanned += count
        self._left -= 1
        return True

    def _step_stream(self, stream: Stream) -> bool:
        """Look at what is left of a chunk of a stream."""
        cursor = self.cursor
        offset = max(cursor.minor + 1, stream.first_offset)
        if offset >= min(cursor.end, stream.end_offset):
            return False
        try:
            chunk = self._chunk_at(stream, offset)
            end = min(chunk.end_offset, cursor.end, offset + self._left)
            while offset < end and not self.is_full():
                index = offset - chunk.first_offset
                came_ms = chunk.time_ms(index)
                self._look(chunk.message(index, stream.slot), READY, came_ms, came_ms)
                cursor.minor = offset
                offset += 1
                self._note(1)
        except CorruptionError:
            end = stream.segments.skip_damage(offset, stream.end_offset)
            cursor.minor = max(end - 1, offset)
            self._chunk = None
            self._note(1)
        return True

    def _chunk_at(self, stream: Stream, offset: i64) -> Chunk:
        chunk = self._chunk
        if chunk is None or not chunk.first_offset <= offset < chunk.end_offset:
            if chunk is not None and chunk.end_offset == offset:
                chunk = stream.segments.next(chunk)
            else:
                chunk = stream.segments.find(offset)
            if not chunk.first_offset <= offset < chunk.end_offset:
                raise CorruptionError(f"offset {offset} is missing")
            self._chunk = chunk
        return chunk

    # Scheduled

    def _step_scheduled(self) -> bool:
        cursor = self.cursor
        scheduled = self.queue.scheduled
        entries = scheduled.after(cursor.major, cursor.minor, self._left, self.wanted.needle)
        if not entries:
            return False
        for due_ms, serial, message in entries:
            cursor.major = due_ms
            cursor.minor = serial
            if message is not None and serial < cursor.end:
                came_ms = arrived_ms(self.queue, message.seq)
                self._look(message, SCHEDULED, due_ms, came_ms)
            self._note(1)
            if self.is_full():
                break
        self._left -= len(entries) * _ODD_READ
        return True

    # In flight

    def _step_unacked(self) -> bool:
        cursor = self.cursor
        sessions = self._sessions
        while self._session < len(sessions):
            session = sessions[self._session]
            name, number = _session_key(session)
            if name > cursor.name or (name == cursor.name and number > cursor.major):
                cursor.name = name
                cursor.major = number
                cursor.minor = BEFORE_ALL
                cursor.end = session.last_tag + 1
            if name == cursor.name and number == cursor.major and self._step_session(session):
                return True
            self._session += 1
            self._left -= _SESSION_STEP
            if self._left <= 0:
                return True
        return False

    def _step_session(self, session: Session) -> bool:
        """Look at some of what a session holds; False when there is no more."""
        cursor = self.cursor
        before = cursor.minor
        slot = self.queue.slot
        held, last = held_after(session.unacked, before, slot, self._left)
        for message in session.undecided():
            if message.queue == slot and before < message.tag and message.tag < cursor.end:
                if len(held) < self._left or message.tag <= last:
                    held.append(message)
        if last == before and not held:
            return False
        held.sort(key=_tag)
        if last == before:
            last = held[-1].tag
        for message in held:
            if message.tag >= cursor.end:
                return False
            cursor.minor = message.tag
            self._look_held(message, session)
            if self.is_full():
                return True
        self._left -= last - max(before, session.unacked.base)
        cursor.minor = last
        return last < cursor.end

    def _look_held(self, message: Message, session: Session) -> None:
        self._note(1)
        before = len(self.found)
        came_ms = arrived_ms(self.queue, message.seq)
        self._look(message, UNACKED, message.taken_ms, came_ms)
        if len(self.found) > before:
            self.found[-1].session = session

    # Stuck

    def _step_stuck(self) -> bool:
        cursor = self.cursor
        held = [m for m in self._stuck.of(self.queue) if m.seq > cursor.minor]
        held.sort(key=_seq)
        for message in held:
            cursor.minor = message.seq
            self._note(1)
            came_ms = arrived_ms(self.queue, message.seq)
            self._look(message, STATES[cursor.state], came_ms, came_ms)
            if self.is_full():
                return True
        return False


def arrived_ms(queue: Queue, seq: i64) -> i64:
    """When a message came to its queue, or became due there; 0 where nobody noted it."""
    seqs = queue.arrival_times.seqs
    return queue.arrival_times.arrived_ms(seq) if seqs and seq >= i64(seqs[0]) else 0


def _session_key(session: Session) -> tuple[str, int]:
    return (session.outlet.name, session.number)


def _tag(message: Message) -> int:
    return message.tag


def _seq(message: Message) -> int:
    return message.seq
