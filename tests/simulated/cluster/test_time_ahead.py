"""A leader whose time is ahead of its clock, because another clock was ahead before, says so."""

from leveret.cluster.faults import DEGRADED
from leveret.runtime.cluster_facts import LOOK_S
from tests.simulated.clients import Accounts, Publisher
from tests.simulated.cluster.broker_node import start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
HOUR_MS = 3_600_000


def test_new_leader_says_that_its_time_is_ahead(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = start_nodes(network, NAMES)
        schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
        schedule.run_for(2 * LOOK_S)
        early = next(node for node in nodes if node.is_serving())
        early.clock.skew_ms = HOUR_MS
        client = Publisher(network, "p0", early.url, Accounts(), 1)
        schedule.run_until(client.task.done, 60)
        assert early.node is not None
        assert early.node.facts()["faults"] == []
        early.kill()
        schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
        leader = next(node for node in nodes if node.is_serving())
        assert leader.node is not None
        told = [fault for fault in leader.node.facts()["faults"] if fault["node"] == leader.name]
        assert [fault["severity"] for fault in told] == [DEGRADED]
        assert "the time of the broker is" in told[0]["fault"]
        assert "at half speed" in told[0]["advice"]
