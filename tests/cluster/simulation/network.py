"""A network that drops, delays, reorders and duplicates; links can be cut in one direction."""

import random
from collections.abc import Callable

from tests.cluster.simulation.schedule import Schedule


class Network:
    """Links between nodes. A cut is of one direction; a partition is a set of cuts."""

    def __init__(self, rng: random.Random, schedule: Schedule) -> None:
        self.rng = rng
        self.schedule = schedule
        self.cuts: set[tuple[int, int]] = set()
        self.is_calm = False  # after healing: nothing is lost any more

    def delays(self, source: int, target: int) -> list[int]:
        """When copies of a message arrive, from now; none if it is lost."""
        if (source, target) in self.cuts:
            return []
        if self.is_calm:
            return [1 + self.rng.randrange(3)]
        if self.rng.random() < self.schedule.drop:
            return []
        copies = 2 if self.rng.random() < self.schedule.duplicate else 1
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        delay = 1 + self.rng.randrange(self.schedule.delay_max)
        return delay * 10 if self.rng.random() < self.schedule.straggle else delay

    def cut(self, source: int, target: int) -> None:
        self.cuts.add((source, target))

    def split(self, one: list[int], other: list[int]) -> None:
        for a in one:
            for b in other:
                self.cut(a, b)
                self.cut(b, a)

    def heal(self) -> None:
        self.cuts.clear()


Shape = Callable[[Network, list[int], int], str]


def random_halves(network: Network, nodes: list[int], leader: int) -> str:
    nodes = nodes[:]
    network.rng.shuffle(nodes)
    middle = len(nodes) // 2
    network.split(nodes[:middle], nodes[middle:])
    return f"halves {nodes[:middle]} {nodes[middle:]}"


def majority_minority(network: Network, nodes: list[int], leader: int) -> str:
    """The leader is with the few."""
    others = [node for node in nodes if node != leader]
    network.rng.shuffle(others)
    few = [leader, *others[: max(0, (len(nodes) - 1) // 2 - 1)]]
    network.split(few, [node for node in nodes if node not in few])
    return f"minority {few}"


def isolated_leader(network: Network, nodes: list[int], leader: int) -> str:
    network.split([leader], [node for node in nodes if node != leader])
    return f"leader {leader} alone"


def ring(network: Network, nodes: list[int], leader: int) -> str:
    """Each node sees a majority, and no two see the same one."""
    nodes = nodes[:]
    network.rng.shuffle(nodes)
    reach = max(1, len(nodes) // 4)
    for at, a in enumerate(nodes):
        for gap in range(reach + 1, len(nodes) - reach):
            network.cut(a, nodes[(at + gap) % len(nodes)])
    return f"ring {nodes}"


def one_way(network: Network, nodes: list[int], leader: int) -> str:
    a, b = network.rng.sample(nodes, 2)
    network.cut(a, b)
    return f"one way {a} -> {b}"


def deaf_leader(network: Network, nodes: list[int], leader: int) -> str:
    """It sends, and hears nothing."""
    for node in nodes:
        if node != leader:
            network.cut(node, leader)
    return f"leader {leader} hears nothing"


# The shapes of RabbitMQ's Jepsen suite, and cuts of one direction.
SHAPES: tuple[Shape, ...] = (
    random_halves,
    majority_minority,
    isolated_leader,
    ring,
    one_way,
    deaf_leader,
)
