"""Whose turn it is: round robin, priorities, and consumers without room."""

from leveret.engine.queues.round_robin import RoundRobin
from leveret.engine.timer_queue import TimerQueue
from leveret.engine.turns.session import Consumer, Outlet, Session, Turn


class Scene:
    """A rota, and consumers that can be made full."""

    def __init__(self, **priorities: int) -> None:
        self.outlet = Outlet()
        self.outlet.credit = 1000
        self.session = Session(self.outlet, Turn(TimerQueue()))
        self.rota = RoundRobin()
        self.consumers: dict[str, Consumer] = {}
        for name, priority in priorities.items():
            self.add(name, priority)

    def add(self, name: str, priority: int = 0) -> None:
        consumer = Consumer(self.session, 0, name, False, False)
        consumer.priority = priority
        consumer.prefetch = 1
        self.consumers[name] = consumer
        self.rota.add(consumer)

    def fill(self, name: str) -> None:
        self.consumers[name].unacked = 1

    def free(self, name: str) -> None:
        """As a queue does when a message is settled."""
        self.consumers[name].unacked = 0
        if self.consumers[name].parked:
            self.rota.unpark(self.consumers[name])

    def turns(self, count: int) -> str:
        found = [self.rota.next() for _ in range(count)]
        return "".join("-" if consumer is None else consumer.tag for consumer in found)


def test_everybody_has_a_turn_before_anybody_has_a_second() -> None:
    assert Scene(a=0, b=0, c=0).turns(7) == "abcabca"


def test_without_consumers_it_is_nobodys_turn() -> None:
    assert Scene().turns(1) == "-"


def test_lower_priorities_are_served_while_the_higher_are_full() -> None:
    scene = Scene(a=0, b=5, c=5, d=0)
    assert scene.turns(3) == "bcb"
    scene.fill("b")
    assert scene.turns(2) == "cc"
    scene.fill("c")
    assert scene.turns(3) == "ada"
    scene.free("b")
    assert scene.turns(2) == "bb"


def test_who_was_full_does_not_lose_the_turn() -> None:
    scene = Scene(a=0, b=0, c=0)
    assert scene.turns(1) == "a"
    scene.fill("b")
    assert scene.turns(2) == "ca"
    scene.free("b")
    assert scene.turns(4) == "bcab"


def test_a_newcomer_is_last_in_the_round() -> None:
    scene = Scene(a=0, b=0)
    assert scene.turns(1) == "a"
    scene.add("c")
    assert scene.turns(4) == "bacb"


def test_who_goes_does_not_disturb_the_order_of_the_others() -> None:
    scene = Scene(a=0, b=0, c=0, d=0)
    assert scene.turns(2) == "ab"
    scene.rota.remove(scene.consumers["a"])
    assert scene.turns(3) == "cdb"
    scene.rota.remove(scene.consumers["c"])
    assert scene.turns(2) == "db"


def test_a_consumer_whose_outlet_has_no_credit_waits_for_it() -> None:
    scene = Scene(a=0)
    scene.outlet.credit = 0
    assert scene.turns(2) == "--"
    assert scene.outlet.starved == [scene.consumers["a"]]
    scene.outlet.credit = 1
    scene.rota.unpark(scene.consumers["a"])
    assert scene.turns(1) == "a"


def test_nothing_is_left_of_priorities_that_nobody_has_any_more() -> None:
    scene = Scene(a=1, b=2)
    scene.fill("a")
    scene.fill("b")
    assert scene.turns(1) == "-"
    for name in ("a", "b"):
        scene.rota.remove(scene.consumers[name])
    waiting = Consumer(scene.session, 0, "c", False, False)
    waiting.priority = 7
    scene.rota.remove(waiting)  # a consumer that waits behind a single active one never joined
    assert scene.rota.groups == []
