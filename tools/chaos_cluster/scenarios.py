"""The fourteen scenarios of RabbitMQ's own Jepsen run, as a table.

They are the lines of `ci/jepsen-test.sh` in github.com/rabbitmq/jepsen, in the same order. Each
repeats a quiet time of 20 s and a cut of 30 or 10 s, for three minutes. RabbitMQ has five nodes and
quorum queues. Two scenarios give these queues three members; in Leveret every node has all queues,
so they run on a cluster of three nodes. In the two scenarios with dead letters messages expire
after a second; here consumers also reject them.

A shape is a set of directions that are cut: pairs of the sending and the receiving node.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

Cut = set[tuple[str, str]]


def random_halves(nodes: list[str], rng: Random) -> Cut:
    """Split the nodes into two halves by chance; of five, three and two."""
    return halves(rng.sample(nodes, len(nodes)), rng)


def halves(nodes: list[str], rng: Random) -> Cut:
    """Split the nodes into the first and the second half."""
    middle = len(nodes) // 2
    return _between(nodes[:middle], nodes[middle:])


def majorities_ring(nodes: list[str], rng: Random) -> Cut:
    """Let every node hear a majority, and no two of them the same one."""
    ring = rng.sample(nodes, len(nodes))
    majority = len(ring) // 2 + 1
    cut: Cut = set()
    for first in range(len(ring)):
        heard = [ring[(first + step) % len(ring)] for step in range(majority)]
        cut |= {(other, heard[majority // 2]) for other in ring if other not in heard}
    return cut


def random_node(nodes: list[str], rng: Random) -> Cut:
    """Cut one node off from all others."""
    alone = rng.choice(nodes)
    return _between([alone], [name for name in nodes if name != alone])


def _between(some: list[str], others: list[str]) -> Cut:
    pairs = {(one, other) for one in some for other in others}
    return pairs | {(other, one) for one, other in pairs}


Shape = Callable[[list[str], Random], Cut]


@dataclass(frozen=True)
class Scenario:
    """One line of RabbitMQ's table."""

    shape: Shape
    cut_s: int  # as in RabbitMQ's run: 30 or 10
    consumers: str = "mixed"  # asynchronous (basic.consume), polling (basic.get), or both
    nodes: int = 5
    is_dead_lettering: bool = False


SCENARIOS: Final[dict[str, Scenario]] = {
    "random-halves-30": Scenario(random_halves, 30),
    "halves-30": Scenario(halves, 30),
    "majorities-ring-30": Scenario(majorities_ring, 30),
    "random-node-30": Scenario(random_node, 30),
    "random-halves-10": Scenario(random_halves, 10),
    "random-halves-10-of-three": Scenario(random_halves, 10, nodes=3),
    "halves-10": Scenario(halves, 10),
    "majorities-ring-10": Scenario(majorities_ring, 10),
    "random-node-10": Scenario(random_node, 10),
    "random-node-10-asynchronous": Scenario(random_node, 10, "asynchronous"),
    "random-node-10-asynchronous-of-three": Scenario(random_node, 10, "asynchronous", nodes=3),
    "random-node-10-polling": Scenario(random_node, 10, "polling"),
    "random-halves-30-dead-letters": Scenario(random_halves, 30, is_dead_lettering=True),
    "halves-30-dead-letters": Scenario(halves, 30, is_dead_lettering=True),
}
