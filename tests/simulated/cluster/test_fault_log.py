"""The log of a node says what is wrong with its cluster, once for each fault that lasts."""

import pytest

from leveret.runtime import cluster_facts
from leveret.runtime.cluster_facts import LOOK_S
from tests.simulated.cluster.broker_node import start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the faults that were logged since the last call, sorted."""
    name = cluster_facts.__name__
    found = sorted(record.message for record in caplog.records if record.name == name)
    caplog.clear()
    return found


def test_log_names_each_lost_node_and_the_lost_majority_once(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = start_nodes(network, NAMES)
        schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
        schedule.run_for(4 * LOOK_S)
        caplog.clear()
        leader = next(node for node in nodes if node.is_serving())
        first, last = (node for node in nodes if node is not leader)

        first.kill()
        schedule.run_for(4 * LOOK_S)
        assert warnings(caplog) == [
            f"node {first.name} is not reached: start it, or look at its log and at the network "
            f"between it and node {node.name}; if it is lost for good, run "
            f"`leveret ctl cluster remove {first.name}`"
            for node in sorted((leader, last), key=lambda node: node.name)
        ]

        leader.kill()
        schedule.run_for(4 * LOOK_S)
        names = ", ".join(sorted((first.name, leader.name)))
        found = warnings(caplog)
        assert [text for text in found if "no node leads" in text] == [
            "no node leads: 1 of 3 voters are reached, and 2 are needed: start the nodes "
            f"{names}, or mend the network; if they are lost for good, stop this node and run "
            "`leveret ctl cluster rescue --data DIR`"
        ]
        assert len(found) == 3  # and that each of the two other nodes is not reached
