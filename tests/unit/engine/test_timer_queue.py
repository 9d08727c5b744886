"""The timer queue: which objects are woken and when, and that cancelled wake-ups are dropped.

The tests wake sessions: a session that is due adds itself to the turn's list of late sessions.
"""

from leveret.engine.backlog.lazy_free import LazyFree
from leveret.engine.timer_queue import NEVER, TimerQueue
from leveret.engine.turns.session import Outlet, Session
from leveret.engine.turns.turn import SessionBase, Turn


class Scene:
    """A timer queue, and sessions that are named by numbers."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.turn = Turn(self.timers)
        self.sessions: list[SessionBase] = [Session(Outlet(), self.turn) for _ in range(4)]

    def arm(self, number: int, due_ms: int) -> None:
        self.timers.arm(self.sessions[number], due_ms)

    def run(self, now_ms: int) -> list[int]:
        """Return the numbers of the sessions that were woken, in order."""
        self.turn.late = []
        self.timers.run(now_ms)
        return [self.sessions.index(session) for session in self.turn.late]


def test_each_object_is_woken_once_at_its_time() -> None:
    scene = Scene()
    scene.arm(0, 30)
    scene.arm(1, 10)
    scene.arm(2, 20)
    assert scene.timers.next_due_ms() == 10
    assert scene.run(9) == []
    assert scene.run(20) == [1, 2]
    assert scene.timers.next_due_ms() == 30
    assert scene.run(40) == [0]
    assert scene.timers.next_due_ms() == NEVER
    assert scene.run(99) == []


def test_objects_due_at_the_same_time_are_woken_in_the_order_of_arming() -> None:
    scene = Scene()
    for number in (2, 0, 3, 1):
        scene.arm(number, 10)
    assert scene.run(10) == [2, 0, 3, 1]


def test_arming_later_keeps_the_earlier_time_and_arming_earlier_moves_it() -> None:
    scene = Scene()
    scene.arm(0, 20)
    scene.arm(0, 30)
    assert scene.timers.next_due_ms() == 20
    scene.arm(0, 10)
    assert scene.run(10) == [0]
    assert scene.run(99) == []


def test_wake_up_can_be_cancelled_and_armed_again() -> None:
    scene = Scene()
    scene.arm(0, 10)
    scene.timers.disarm(scene.sessions[0])
    assert scene.timers.next_due_ms() == NEVER
    scene.arm(0, 10)
    assert scene.run(10) == [0]


def test_object_that_is_due_again_at_once_waits_for_the_next_run() -> None:
    timers = TimerQueue()
    lazy_free = LazyFree(timers)
    lazy_free.add([b"%d" % number for number in range(50_000)])
    runs = 0
    while timers.next_due_ms() != NEVER:
        timers.run(100)
        runs += 1
    assert runs == 3


def test_cancelled_wake_ups_do_not_pile_up() -> None:
    scene = Scene()
    scene.arm(1, 10**9)
    for due_ms in range(100_000, 1000, -1):
        scene.arm(0, due_ms)
        scene.timers.disarm(scene.sessions[0])
    assert len(scene.timers._heap) < 5000
    assert scene.timers.next_due_ms() == 10**9
