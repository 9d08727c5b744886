"""The pulse: who is woken, when, and what it costs to change one's mind.

Sessions are what is woken here: one that is due puts itself on its turn's list of late ones.
"""

from leveret.engine.backlog.trash import Trash
from leveret.engine.pulse import NEVER, Pulse
from leveret.engine.turns.session import Outlet, Session
from leveret.engine.turns.turn import SessionBase, Turn


class Scene:
    """A pulse, and sessions that are named by numbers."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        self.turn = Turn(self.pulse)
        self.sessions: list[SessionBase] = [Session(Outlet(), self.turn) for _ in range(4)]

    def arm(self, number: int, due_ms: int) -> None:
        self.pulse.arm(self.sessions[number], due_ms)

    def run(self, now_ms: int) -> list[int]:
        """The numbers of those that were woken, in order."""
        self.turn.late = []
        self.pulse.run(now_ms)
        return [self.sessions.index(session) for session in self.turn.late]


def test_everybody_is_woken_once_at_the_time_asked_for() -> None:
    scene = Scene()
    scene.arm(0, 30)
    scene.arm(1, 10)
    scene.arm(2, 20)
    assert scene.pulse.next_due_ms() == 10
    assert scene.run(9) == []
    assert scene.run(20) == [1, 2]
    assert scene.pulse.next_due_ms() == 30
    assert scene.run(40) == [0]
    assert scene.pulse.next_due_ms() == NEVER
    assert scene.run(99) == []


def test_those_due_at_one_time_are_woken_in_the_order_in_which_they_asked() -> None:
    scene = Scene()
    for number in (2, 0, 3, 1):
        scene.arm(number, 10)
    assert scene.run(10) == [2, 0, 3, 1]


def test_asking_for_later_keeps_the_earlier_time_and_asking_for_earlier_moves_it() -> None:
    scene = Scene()
    scene.arm(0, 20)
    scene.arm(0, 30)
    assert scene.pulse.next_due_ms() == 20
    scene.arm(0, 10)
    assert scene.run(10) == [0]
    assert scene.run(99) == []


def test_a_wake_up_can_be_forgotten_and_asked_for_again() -> None:
    scene = Scene()
    scene.arm(0, 10)
    scene.pulse.disarm(scene.sessions[0])
    assert scene.pulse.next_due_ms() == NEVER
    scene.arm(0, 10)
    assert scene.run(10) == [0]


def test_what_is_due_again_at_once_waits_for_the_next_run() -> None:
    pulse = Pulse()
    trash = Trash(pulse)
    trash.add([b"%d" % number for number in range(50_000)])
    runs = 0
    while pulse.next_due_ms() != NEVER:
        pulse.run(100)
        runs += 1
    assert runs == 3


def test_wake_ups_that_were_forgotten_do_not_pile_up() -> None:
    scene = Scene()
    scene.arm(1, 10**9)
    for due_ms in range(100_000, 1000, -1):
        scene.arm(0, due_ms)
        scene.pulse.disarm(scene.sessions[0])
    assert len(scene.pulse._heap) < 5000
    assert scene.pulse.next_due_ms() == 10**9
