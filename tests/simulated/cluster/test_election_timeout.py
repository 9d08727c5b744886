"""A leader that pauses keeps its lead if the election timeout of the cluster is longer."""

from dataclasses import replace

import pytest

from leveret.config.settings import Settings
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
PAUSE_S = 2.5  # longer than the usual timeout can be by chance
CALM_S = 10.0


class Node(SimulatedBroker):
    """A node with an election timeout."""

    election_timeout_ms = 0

    def settings(self) -> Settings:
        timeout_ms = self.election_timeout_ms
        return replace(super().settings(), cluster_election_timeout_ms=timeout_ms)


def leader_of(nodes: list[Node]) -> Node | None:
    return next((node for node in nodes if node.is_serving()), None)


@pytest.mark.parametrize(("timeout_ms", "keeps_lead"), [(1_000, False), (4_000, True)])
def test_pause_of_the_leader(seed: int, timeout_ms: int, keeps_lead: bool) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = [Node(network, name, NAMES) for name in NAMES]
        for node in nodes:
            node.election_timeout_ms = timeout_ms
            node.start()
        schedule.run_until(lambda: leader_of(nodes) is not None, 60)
        schedule.run_for(CALM_S)
        leader = leader_of(nodes)
        assert leader is not None and leader.loop is not None and leader.node is not None
        term = leader.node.member.term
        leader.loop.call_soon(leader.loop.block, PAUSE_S)
        schedule.run_for(CALM_S)
        assert (leader.node.member.term == term) == keeps_lead
        assert (leader_of(nodes) is leader) == keeps_lead
