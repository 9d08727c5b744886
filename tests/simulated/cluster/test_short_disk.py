"""A leader whose disk is nearly full lets a node with room lead, because its publishers wait."""

from dataclasses import replace

import msgspec
import pytest

from leveret.cluster.errors import ClusterError
from leveret.cluster.faults import DEGRADED
from leveret.http.framework.node import NodeReport
from leveret.runtime.cluster_facts import HAND_OVER_PAUSE_S, LOOK_S
from leveret.runtime.machine import read_machine
from leveret.storage.store import DISK_FULL
from tests.simulated.cluster.broker_node import SimulatedBroker, start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
LIMIT_BYTES = 1000


def report_free(node: SimulatedBroker, free_bytes: int) -> None:
    """Let a node report its free disk space to the leader."""
    machine = read_machine(None, disk_limit_bytes=LIMIT_BYTES)
    report = NodeReport(0, replace(machine, disk_free_bytes=free_bytes))
    assert node.member is not None
    node.member.reports.make = lambda: msgspec.json.encode(report)


def formed(schedule: Schedule) -> tuple[list[SimulatedBroker], SimulatedBroker]:
    """Return three nodes that serve clients, and the one that leads."""
    network = Network(schedule)
    nodes = start_nodes(network, NAMES)
    schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
    schedule.run_for(2 * LOOK_S)
    return nodes, next(node for node in nodes if node.is_serving())


def fill(node: SimulatedBroker) -> None:
    """Raise the alarm of a disk that is nearly full."""
    assert node.node is not None
    assert node.node.node is not None
    node.node.node.front.alarms.append(DISK_FULL)


def test_node_with_most_room_takes_the_lead_from_a_leader_with_a_short_disk(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        nodes, leader = formed(schedule)
        small, large = (node for node in nodes if node is not leader)
        report_free(small, 2 * LIMIT_BYTES)
        report_free(large, 3 * LIMIT_BYTES)
        schedule.run_for(2 * LOOK_S)
        assert leader.is_serving()
        fill(leader)
        assert leader.node is not None
        told = [fault for fault in leader.node.facts()["faults"] if fault["node"] == leader.name]
        assert [fault["severity"] for fault in told] == [DEGRADED]
        assert "less free space than disk_free_min, and it leads, so publishers wait" in str(told)
        schedule.run_until(large.is_serving, 6 * LOOK_S)


@pytest.mark.parametrize("free_bytes", [0, 2 * LIMIT_BYTES - 1])
def test_leader_with_a_short_disk_leads_on_if_no_node_has_room(seed: int, free_bytes: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        nodes, leader = formed(schedule)
        for node in nodes:
            report_free(node, free_bytes)
        schedule.run_for(2 * LOOK_S)
        fill(leader)
        schedule.run_for(4 * LOOK_S)
        assert leader.is_serving()


def test_hand_over_that_fails_is_tried_again_after_a_pause(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        nodes, leader = formed(schedule)
        for node in nodes:
            report_free(node, 2 * LIMIT_BYTES)
        schedule.run_for(2 * LOOK_S)
        asked: list[str] = []

        async def refuse(name: str) -> str:
            asked.append(name)
            raise ClusterError("it did not take the lead in time")

        assert leader.member is not None
        monkeypatch.setattr(leader.member, "lead", refuse)
        fill(leader)
        schedule.run_until(lambda: len(asked) == 1, 4 * LOOK_S)
        schedule.run_for(HAND_OVER_PAUSE_S - 2 * LOOK_S)
        assert len(asked) == 1
        schedule.run_until(lambda: len(asked) == 2, 4 * LOOK_S)
