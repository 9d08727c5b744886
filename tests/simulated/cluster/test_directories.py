"""The data directory of a node belongs to that node."""

from tests.simulated.cluster.broker_node import SimulatedBroker, start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]


def test_a_node_with_the_directory_of_another_node_does_not_start(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = start_nodes(network, NAMES)
        _, b, c = nodes
        schedule.run_until(lambda: all(_knows_all(node) for node in nodes), 60)
        for node in (b, c):
            node.kill()
        b.disk, c.disk = c.disk, b.disk
        reasons: list[str] = []
        b.on_ended = lambda _, reason: reasons.append(reason)
        b.start()
        schedule.run_until(lambda: bool(reasons), 60)
        assert reasons == [
            "cannot start: the data directory belongs to node c, not to node b: "
            "correct --node or --data"
        ]


def _knows_all(node: SimulatedBroker) -> bool:
    """Return True if the node knows that all nodes vote."""
    if node.member is None:
        return False
    roles = [member.role for member in node.member.status().members]
    return len(roles) == len(NAMES) and "non-voter" not in roles
