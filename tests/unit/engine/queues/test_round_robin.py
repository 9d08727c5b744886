"""Whose turn it is: round robin, priorities, and consumers without room."""

from leveret.engine.queues.round_robin import RoundRobin
from leveret.engine.timer_queue import TimerQueue
from leveret.engine.turns.session import Consumer, Outlet, Session
from leveret.engine.turns.turn import Turn


class Scene:
    """A round robin, and consumers that can be made full."""

    def __init__(self, **priorities: int) -> None:
        self.outlet = Outlet()
        self.outlet.credit = 1000
        self.session = Session(self.outlet, Turn(TimerQueue()))
        self.round_robin = RoundRobin()
        self.consumers: dict[str, Consumer] = {}
        for name, priority in priorities.items():
            self.add(name, priority)

    def add(self, name: str, priority: int = 0) -> None:
        consumer = Consumer(self.session, 0, name, no_ack=False, exclusive=False)
        consumer.priority = priority
        consumer.prefetch = 1
        self.consumers[name] = consumer
        self.round_robin.add(consumer)

    def fill(self, name: str) -> None:
        self.consumers[name].unacked = 1

    def free(self, name: str) -> None:
        """Resume a consumer, as a queue does when a message is settled."""
        self.consumers[name].unacked = 0
        if self.consumers[name].suspended:
            self.round_robin.resume_consumer(self.consumers[name])

    def turns(self, count: int) -> str:
        found = [self.round_robin.next() for _ in range(count)]
        return "".join("-" if consumer is None else consumer.tag for consumer in found)


def test_everybody_has_a_turn_before_anybody_has_a_second() -> None:
    assert Scene(a=0, b=0, c=0).turns(7) == "abcabca"


def test_priorities_without_a_free_consumer_are_not_looked_at() -> None:
    """There may be a hundred thousand of them, and each message would pass them all."""
    scene = Scene(a=3, b=1, c=2, d=1)
    for name in "acbd":
        assert scene.turns(1) == name
        scene.fill(name)
    assert scene.turns(1) == "-"
    assert scene.round_robin.groups == []
    for name in "dbca":
        scene.free(name)
    assert [group.priority for group in scene.round_robin.groups] == [1, 2, 3]
    scene.fill("a")
    assert scene.turns(1) == "c"


def test_without_consumers_there_is_no_next_one() -> None:
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


def test_a_consumer_that_was_full_keeps_its_turn() -> None:
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


def test_removing_a_consumer_keeps_the_order_of_the_others() -> None:
    scene = Scene(a=0, b=0, c=0, d=0)
    assert scene.turns(2) == "ab"
    scene.round_robin.remove(scene.consumers["a"])
    assert scene.turns(3) == "cdb"
    scene.round_robin.remove(scene.consumers["c"])
    assert scene.turns(2) == "db"


def test_a_consumer_whose_outlet_has_no_credit_waits_for_it() -> None:
    scene = Scene(a=0)
    scene.outlet.credit = 0
    assert scene.turns(2) == "--"
    assert scene.outlet.starved == [scene.consumers["a"]]
    scene.outlet.credit = 1
    scene.round_robin.resume_consumer(scene.consumers["a"])
    assert scene.turns(1) == "a"


def test_empty_priority_groups_are_removed() -> None:
    scene = Scene(a=1, b=2)
    scene.fill("a")
    scene.fill("b")
    assert scene.turns(1) == "-"
    for name in ("a", "b"):
        scene.round_robin.remove(scene.consumers[name])
    waiting = Consumer(scene.session, 0, "c", no_ack=False, exclusive=False)
    waiting.priority = 7
    scene.round_robin.remove(
        waiting
    )  # a consumer that waits behind a single active one never joined
    assert scene.round_robin.groups == []
