"""A node that leads no more says that it has dropped its broker."""

from functools import partial

from leveret.cluster.member import ClusterMember
from tests.simulated.cluster.broker_node import SimulatedBroker, start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]


def test_node_that_hands_its_lead_over_says_once_that_its_broker_is_dropped(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = start_nodes(network, NAMES)
        schedule.run_until(lambda: all(is_voter(nodes, name) for name in NAMES), 60)
        dropped: list[str] = []
        for node in nodes:
            assert node.node is not None
            node.node.on_dropped = partial(dropped.append, node.name)
        old = next(node for node in nodes if node.is_serving())
        new = next(node for node in nodes if node is not old)
        assert old.loop is not None and old.node is not None
        old.loop.start(hand_over(old.node.member, new.name))
        schedule.run_until(lambda: new.is_serving() and bool(dropped), 60)
        schedule.run_for(10.0)
        assert dropped == [old.name]
        assert old.node.node is None


def is_voter(nodes: list[SimulatedBroker], name: str) -> bool:
    """Return True if the leader serves clients, and counts this node as a voter."""
    leader = next((node.node for node in nodes if node.is_serving()), None)
    if leader is None:
        return False
    members = leader.member.status().members
    return any(member.name == name and member.role != "non-voter" for member in members)


async def hand_over(member: ClusterMember, name: str) -> None:
    await member.lead(name)
