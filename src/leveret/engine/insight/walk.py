"""A walk through all messages of a queue, in slices, that changes nothing.

The states follow each other: ready in the order of delivery, scheduled by due time, in flight by
session and delivery tag, then stuck dead letters. The queue may change between two slices. So the
position of a walk (`WalkCursor`) is not an index but the key of the last message that was examined.
Keys ascend inside a state:

    ready      line (returned messages first, then by priority), rank or number
    scheduled  due time, order of arrival
    unacked    connection, channel, delivery tag
    stuck      sequence number
    a stream   offset

A message that stays in its state is seen once. A message that moves on meanwhile (it is delivered)
may be seen in both states. A message that moves back (it is requeued, or falls due) may be missed.
A message that enters a state after the walk is left out, so that a walk ends however busy the queue
is.

Messages in the log alone are read a page at a time into new objects, and only those that contain
the needle of the filter. Unreadable messages are skipped.
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
    line_groups,
    lines_of_group,
    messages_after,
    number_of_first,
    run_after,
)
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.queues.stuck_dead_letters import StuckDeadLetters
from leveret.engine.streams.chunk import Chunk
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Session
from leveret.errors import CorruptionError

NOT_SET: Final = -1
_SESSION_STEP: Final = 64  # cost of a session without messages of the queue, in messages
_AGE_STEP: Final = 1024  # messages that are excluded by age together
_ODD_READ: Final = 8  # cost of a message that is read alone, in messages


class WalkCursor:
    """The position of a walk."""

    def __init__(self) -> None:
        self.state: i64 = 0  # index in STATES; after the last one the walk is over
        self.name = ""  # in flight: of the connection
        self.major: i64 = BEFORE_ALL
        self.minor: i64 = BEFORE_ALL
        # Keys from these on are newer than the walk; see `enter`
        self.end: i64 = NOT_SET
        self.return_end: i64 = 0  # ready: the same for the line of returned messages

    def enter(self, queue: Queue) -> None:
        """Begin a state. In flight, `_step_unacked` sets the end of each session."""
        state = STATES[self.state]
        if state == READY:
            self.end = queue.end_offset if isinstance(queue, Stream) else queue.next_seq
            self.return_end = queue.ready.returns
        else:
            self.end = queue.scheduled.serial + 1 if state == SCHEDULED else 0

    def leave(self) -> None:
        """Go on to the next state."""
        self.state += 1
        self.name = ""
        self.major = BEFORE_ALL
        self.minor = BEFORE_ALL
        self.end = NOT_SET


class FoundMessage:
    """A message that matches the filter, with its state."""

    def __init__(self, message: Message, state: str, time_ms: i64) -> None:
        self.message = message  # may be the queue's own: do not change it
        self.state = state
        # ready, stuck: time of arrival, 0 = unknown; scheduled: due time; unacked: time of delivery
        self.time_ms = time_ms
        self.session: Session | None = None  # in flight: its holder


class Walk:
    """One walk through one queue.

    `sessions` are all sessions that may hold messages of the queue. A walk that continues from a
    cursor finds the same messages as one that never stopped.
    """

    def __init__(
        self,
        queue: Queue,
        stuck: StuckDeadLetters,
        wanted: Filter,
        sessions: list[Session],
        cursor: WalkCursor | None = None,
    ) -> None:
        self.queue = queue
        self.wanted = wanted
        self.cursor = cursor if cursor is not None else WalkCursor()
        self.scanned: i64 = 0  # messages examined or skipped
        self.found: list[FoundMessage] = []
        self._bytes: i64 = 0  # body bytes of `found`
        self._stuck = stuck
        self._sessions = sorted(sessions, key=_session_key)
        self._session: i64 = 0  # index of the next session to examine
        self._chunk: Chunk | None = None  # of a stream: the last chunk that was read
        self._left: i64 = 0
        self._found_max: i64 = 0
        self._bytes_max: i64 = 0

    def is_done(self) -> bool:
        return self.cursor.state >= len(STATES) or self.queue.deleted

    def is_full(self) -> bool:
        """Return True if enough was found."""
        return len(self.found) >= self._found_max or self._bytes >= self._bytes_max

    def step(self, most: i64, found_max: i64, bytes_max: i64) -> None:
        """Examine about `most` further messages. Stop when enough was found.

        At least one page is read. `found` and `scanned` continue from the step before.
        """
        self._left = most
        self._found_max = found_max
        self._bytes_max = bytes_max
        while self._left > 0 and not self.is_done() and not self.is_full():
            state = STATES[self.cursor.state]
            if state not in self.wanted.states or not self._step_in(state):
                self.cursor.leave()

    def _step_in(self, state: str) -> bool:
        """Examine some messages of a state. Return False if there are no more."""
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

    def take(self) -> list[FoundMessage]:
        """Return the messages found since the last call."""
        found = self.found
        self.found = []
        self._bytes = 0
        return found

    def _examine(self, message: Message, state: str, time_ms: i64, arrival_ms: i64) -> None:
        if self.wanted.matches(message, arrival_ms, self.queue.turn.now_ms):
            self.found.append(FoundMessage(message, state, time_ms))
            self._bytes += len(message.body)

    def _note(self, count: i64) -> None:
        self.scanned += count
        self._left -= count

    def _step_ready(self) -> bool:
        """Examine some ready messages, of many lines if they are short.

        The lines are listed once for each step: each of a hundred thousand may have one message.
        """
        cursor = self.cursor
        ready = self.queue.ready
        for group in line_groups(ready, cursor.major):
            for order, line in lines_of_group(ready, group):
                if order < cursor.major:
                    continue
                if order > cursor.major:
                    cursor.major = order
                    cursor.minor = BEFORE_ALL
                while self._step_returned() if order == BACK else self._step_line(line):
                    if self._left <= 0 or self.is_full():
                        return True
        return False

    def _step_returned(self) -> bool:
        """Examine some returned messages that are served first. Return False at the end."""
        cursor = self.cursor
        ready = self.queue.ready
        number = number_of_first(ready, max(cursor.minor, -1))
        for message in came_back_after(ready, max(cursor.minor, -1), self._left):
            if number >= cursor.return_end:
                return False
            cursor.minor = number
            number += 1
            self._examine_ready(message)
            if self.is_full():
                return True
        return self._left <= 0

    def _step_line(self, line: Line) -> bool:
        """Examine some messages of a line. Return False if there are no more."""
        cursor = self.cursor
        messages = messages_after(line, cursor.minor, self._left)
        if not messages:
            return self._step_paged(line)
        for message in messages:
            if message.rank >= cursor.end:
                return False
            cursor.minor = message.rank
            self._examine_ready(message)
            if self.is_full():
                break
        return True

    def _examine_ready(self, message: Message) -> None:
        self._note(1)
        arrival_ms = arrived_ms(self.queue, message.seq)
        self._examine(message, READY, arrival_ms, arrival_ms)

    def _step_paged(self, line: Line) -> bool:
        """Examine a page of messages that are in the log alone."""
        cursor = self.cursor
        run = run_after(line, cursor.minor)
        if run is None or i64(run.seqs[run.at]) >= cursor.end:
            return False
        pages = self.queue.ready.pages
        assert pages is not None
        if self._skips_by_age(run):
            return True
        if not pages.prepare(run):
            self._left = 0  # the file is being checked: continue in the next slice
            return True
        candidates: list[Message] = []
        try:
            candidates, count = pages.sift(run, self.wanted.needle)
        except CorruptionError:
            count = pages.unreadable(run)
        line.mark_returns(candidates)
        last: i64 = run.seqs[run.at + count - 1]
        for message in candidates:
            if message.seq >= cursor.end:
                break
            arrival_ms = arrived_ms(self.queue, message.seq)
            self._examine(message, READY, arrival_ms, arrival_ms)
            if self.is_full():
                last = message.seq
                break
        cursor.minor = last
        self._note(count_through(run, count, last))
        return True

    def _skips_by_age(self, run: PagedRun) -> bool:
        """Skip the next messages of a run if all of them are too young or too old."""
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
        """Examine the rest of a chunk of a stream."""
        cursor = self.cursor
        offset = max(cursor.minor + 1, stream.first_offset)
        if offset >= min(cursor.end, stream.end_offset):
            return False
        try:
            chunk = self._chunk_at(stream, offset)
            end = min(chunk.end_offset, cursor.end, offset + self._left)
            while offset < end and not self.is_full():
                index = offset - chunk.first_offset
                arrival_ms = chunk.time_ms(index)
                self._examine(chunk.message(index, stream.slot), READY, arrival_ms, arrival_ms)
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
                arrival_ms = arrived_ms(self.queue, message.seq)
                self._examine(message, SCHEDULED, due_ms, arrival_ms)
            self._note(1)
            if self.is_full():
                break
        self._left -= len(entries) * _ODD_READ
        return True

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
        """Examine some messages that a session holds. Return False if there are no more."""
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
            self._examine_held(message, session)
            if self.is_full():
                return True
        self._left -= last - max(before, session.unacked.base)
        cursor.minor = last
        return last < cursor.end

    def _examine_held(self, message: Message, session: Session) -> None:
        self._note(1)
        before = len(self.found)
        arrival_ms = arrived_ms(self.queue, message.seq)
        self._examine(message, UNACKED, message.taken_ms, arrival_ms)
        if len(self.found) > before:
            self.found[-1].session = session

    def _step_stuck(self) -> bool:
        cursor = self.cursor
        held = [m for m in self._stuck.of(self.queue) if m.seq > cursor.minor]
        held.sort(key=_seq)
        for message in held:
            cursor.minor = message.seq
            self._note(1)
            arrival_ms = arrived_ms(self.queue, message.seq)
            self._examine(message, STATES[cursor.state], arrival_ms, arrival_ms)
            if self.is_full():
                return True
        return False


def arrived_ms(queue: Queue, seq: i64) -> i64:
    """Return when a message came to its queue or fell due, or 0 if that is unknown."""
    seqs = queue.arrival_times.seqs
    return queue.arrival_times.arrived_ms(seq) if seqs and seq >= i64(seqs[0]) else 0


def _session_key(session: Session) -> tuple[str, int]:
    return (session.outlet.name, session.number)


def _tag(message: Message) -> int:
    return message.tag


def _seq(message: Message) -> int:
    return message.seq
