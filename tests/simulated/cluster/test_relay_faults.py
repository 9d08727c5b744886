"""A node that does not reach its leader for clients says so, though the two are connected."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leveret.cluster.faults import DEGRADED
from leveret.cluster.relay import RelayHead
from leveret.listening import Client, Relayed
from leveret.runtime import public_listeners, relayed_clients
from leveret.runtime.cluster_facts import LOOK_S
from leveret.runtime.fronts import make_front
from leveret.runtime.node import Node
from tests.simulated.clients import Accounts, Publisher
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]


def led_by_a(schedule: Schedule, nodes: dict[str, SimulatedBroker]) -> None:
    """Run until node a serves clients."""
    schedule.run_until(lambda: any(node.is_serving() for node in nodes.values()), 60)
    schedule.run_for(2)
    if not nodes["a"].is_serving():
        asked = nodes["c"]
        assert asked.loop is not None
        assert asked.member is not None
        asked.loop.start(asked.member.lead("a"))
    schedule.run_until(nodes["a"].is_serving, 60)


@contextmanager
def three_nodes(
    seed: int,
) -> Iterator[tuple[Schedule, Network, dict[str, SimulatedBroker]]]:
    """Return three nodes, of which node a serves clients."""
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = {name: SimulatedBroker(network, name, NAMES) for name in NAMES}
        for node in nodes.values():
            node.start()
        led_by_a(schedule, nodes)
        yield schedule, network, nodes


def test_wrong_address_of_the_leader_is_told(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = {name: SimulatedBroker(network, name, NAMES) for name in NAMES}
        lost = nodes["c"]
        lost.wrong_hosts["a"] = "nowhere"  # node a dials it, so they are connected
        for node in nodes.values():
            node.start()
        led_by_a(schedule, nodes)
        schedule.run_until(lambda: lost.node is not None and lost.node.leader == "a", 60)
        assert lost.node is not None
        assert lost.node.why_unwell() == ""

        client = Publisher(network, "p0", lost.url, Accounts(), 1)
        schedule.run_for(4 * LOOK_S)
        reason = "node a at nowhere:25672 cannot be reached: Connection refused"
        assert lost.node.why_unwell() == reason
        told = [fault for fault in lost.node.facts()["faults"] if fault["severity"] == DEGRADED]
        assert [fault["fault"] for fault in told] == [
            f"clients of node c are not served ({reason})"
        ]
        assert told[0]["advice"].startswith("correct --cluster-peers of node c")
        name = public_listeners.__name__
        lines = {record.message for record in caplog.records if record.name == name}
        assert f"a connection was refused: {reason}" in lines
        assert f"{told[0]['fault']}: {told[0]['advice']}" in caplog.messages

        lost.kill()
        lost.wrong_hosts.clear()
        lost.start()
        schedule.run_until(client.task.done, 60)
        assert lost.node.why_unwell() == ""


def test_relayed_clients_wait_at_a_node_that_was_just_elected(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with three_nodes(seed) as (schedule, network, nodes):
        clients = [Publisher(network, f"p{at}", nodes[at].url, Accounts(), 600) for at in "bc"]
        schedule.run_for(1)
        nodes["a"].kill()
        for client in clients:
            schedule.run_until(client.task.done, 60)
        assert any(nodes[name].is_serving() for name in "bc")
        assert not [text for text in caplog.messages if "does not lead" in text]


def test_relayed_client_is_let_go_if_the_leader_has_a_bug(
    seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("planted")]

    async def fail_once(
        node: Node, head: RelayHead, client: Client, relayed: Relayed | None
    ) -> asyncio.BaseProtocol:
        if relayed is not None and faults:
            raise faults.pop()
        return await make_front(node, head, client, relayed)

    monkeypatch.setattr(relayed_clients, "make_front", fail_once)
    with three_nodes(seed) as (schedule, network, nodes):
        client = Publisher(network, "p0", nodes["c"].url, Accounts(), 1)
        schedule.run_until(client.task.done, 60)
        assert faults == []
        assert [text for text in caplog.messages if "is closed because of a bug" in text]
