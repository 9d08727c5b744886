"""The answers of relayed publishers: the log of a leader waits for them before its next block.

A publisher with a limited number of unconfirmed messages sends as many as a commit has confirmed,
in several pieces. By way of another node the pieces come later than from a client of the leader,
and with gaps between them. A block that is taken in a gap holds a part of them, and the publisher's
messages stay divided into two blocks from then on. A block costs all nodes writes, syncs, frames
and wake-ups, whatever its size. So the log waits until all pieces are there.

A wait ends when most of an answer has come, when much waits to be written, or after one to two
`WAIT_S`. No client waits for another one: there is no wait while the next block holds something of
a client whose answer is not awaited, and the first answer that is there ends the wait for all
others. After a wait in vain no answers are expected for a while, and for longer each time: some
publishers wait until all their messages are confirmed, or have nothing to send. A commit that
confirms few messages is not followed by a wait, so that a client that sends one message at a time
is as quick as without it.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.turns.turn import SessionBase

CONFIRMED_MIN: Final = 32  # messages of a publisher in one commit; fewer are not waited for
WAIT_S: Final = 0.002  # an answer takes 0.3 ms, and a few ms on a busy machine
WAITING_BYTES_MAX: Final = 262_144  # a block of this size is worth its cost
# Not all of an answer is waited for: clients send in bursts, and keep back a part of one.
_LEFT_SHARE: Final = 8
_VAIN_MAX: Final = 6  # then 2^6 commits are not waited for
_MET_MIN: Final = 16  # waits that end well, one after the other, make up for one in vain


class AnswerWait:
    """The publishers whose answers are awaited."""

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], object],
        on_late: Callable[[], None],
    ) -> None:
        self.confirmed_min: i64 = CONFIRMED_MIN
        self._call_later = call_later
        self._on_late = on_late  # called when a wait ends without the answers
        self._confirmed: dict[SessionBase, int] = {}  # messages that the last commit has confirmed
        self._goals: dict[SessionBase, int] = {}  # `publish_seq` at which an answer has come
        self._waiting: dict[SessionBase, None] = {}  # sessions that wait for the next block
        self._is_timed = False  # a timer runs; it is never cancelled, and serves several waits
        self._is_young = False  # the wait has begun after the timer
        self._vain: i64 = 0  # waits in vain that nothing has made up for
        self._met: i64 = 0  # waits that ended well since
        self._skips: i64 = 0  # commits that are not waited for

    def note_confirmed(self, session: SessionBase, count: i64) -> None:
        """Note messages of a publisher that a commit has confirmed."""
        if session.is_relayed:
            self._confirmed[session] = self._confirmed.get(session, 0) + int(count)

    def note_waiting(self, session: SessionBase) -> None:
        """Note a session that waits for the next block. It waits for no answer but its own."""
        self._waiting[session] = None
        goals = self._goals
        if goals:
            goal = goals.get(session, -1)
            if goal < 0:
                self.stop()
            elif session.publish_seq >= goal:
                self._note_met()
                self.stop()

    def note_taken(self) -> None:
        """Note that the next block was taken: nobody waits for the one behind it."""
        self._waiting.clear()

    def begin(self) -> None:
        """Begin to wait for the answers to the confirms of a commit, if that is worth it."""
        confirmed = self._confirmed
        if not confirmed:
            return
        if self._has_others():
            self.stop()
        else:
            for session, count in confirmed.items():
                if count >= self.confirmed_min:
                    self._expect(session, count)
        confirmed.clear()

    def _has_others(self) -> bool:
        """Return True if a session waits for the next block whose answer will not be awaited."""
        if len(self._waiting) > len(self._confirmed) + len(self._goals):
            return True
        for session in self._waiting:
            if session not in self._goals:
                if self._confirmed.get(session, 0) < self.confirmed_min:
                    return True
        return False

    def _expect(self, session: SessionBase, count: i64) -> None:
        if self._skips > 0:
            self._skips -= 1
            return
        goals = self._goals
        if not goals:
            self._is_young = self._is_timed
            self._begin_timer()
        sent = max(goals.get(session, 0), int(session.publish_seq))
        goals[session] = sent + int(count - count // _LEFT_SHARE)

    def lasts(self, waiting_bytes: i64) -> bool:
        """Return True while the next block should wait. `waiting_bytes` is its size so far."""
        if self._goals and waiting_bytes >= WAITING_BYTES_MAX:
            self.stop()
        return bool(self._goals)

    def _note_met(self) -> None:
        self._met += 1
        if self._met >= _MET_MIN:
            self._met = 0
            self._vain = max(0, self._vain - 1)

    def stop(self) -> None:
        """Wait for no answer."""
        self._goals.clear()

    def _begin_timer(self) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._call_later(WAIT_S, self._on_timer)

    def _on_timer(self) -> None:
        self._is_timed = False
        if self._goals and self._is_young:
            self._is_young = False
            self._begin_timer()
        elif self._goals:
            self._goals.clear()
            self._vain = min(self._vain + 1, _VAIN_MAX)
            self._met = 0
            self._skips = 1 << self._vain
            self._on_late()
