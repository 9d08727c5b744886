"""A node that leads no more says that it has dropped its broker, and frees its memory."""

import gc
import logging
from functools import partial

import pytest

from leveret.amqp_client.client import AmqpClient, Delivery
from leveret.cluster.member import ClusterMember
from leveret.engine.broker import Broker
from leveret.job_model import NewJob
from leveret.runtime.node import Node
from tests.simulated.clients import (
    QUEUE,
    STREAM,
    Accounts,
    Client,
    Consumer,
    Publisher,
    StreamReader,
)
from tests.simulated.cluster.broker_node import SimulatedBroker, start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
MESSAGES = 50  # of each queue


class Holder(Consumer):
    """A consumer that acks nothing."""

    def _ack(self, client: AmqpClient, delivery: Delivery) -> bytes:
        return delivery.body


def test_node_that_hands_its_lead_over_says_once_that_its_broker_is_dropped(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        nodes, old = formed(schedule)
        dropped: list[str] = []
        for node in nodes:
            assert node.node is not None
            node.node.on_dropped = partial(dropped.append, node.name)
        new = next(node for node in nodes if node is not old)
        assert old.loop is not None and old.node is not None
        old.loop.start(hand_over(old.node.member, new.name))
        schedule.run_until(lambda: new.is_serving() and bool(dropped), 60)
        schedule.run_for(10.0)
        assert dropped == [old.name]
        assert old.node.node is None


def test_memory_of_a_dropped_broker_is_freed_with_messages_in_flight(seed: int) -> None:
    print(f"seed {seed}")
    before = brokers()
    with Schedule(seed) as schedule:
        nodes, old = formed(schedule)
        hold_messages(old)
        new = next(node for node in nodes if node is not old)
        assert old.loop is not None and old.node is not None
        old.loop.start(hand_over(old.node.member, new.name))
        schedule.run_until(lambda: new.is_serving() and not old.is_serving(), 60)
        schedule.run_for(10.0)
        assert brokers() - before == 1


def test_memory_of_a_killed_node_is_freed_when_the_run_is_over(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    print(f"seed {seed}")
    before = brokers()
    with caplog.at_level(logging.CRITICAL + 1):  # records of the log refer to the node
        run_and_kill(seed)
    assert brokers() == before


def run_and_kill(seed: int) -> None:
    with Schedule(seed) as schedule:
        _, leader = formed(schedule)
        hold_messages(leader)
        leader.kill()


def test_a_bug_in_a_change_of_roles_ends_the_node_with_its_reason(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that goes on without its task would neither lead nor follow, and say nothing."""
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        nodes, old = formed(schedule)
        new = next(node for node in nodes if node is not old)
        ends: list[str] = []
        new.on_ended = lambda _, reason: ends.append(reason)
        assert old.loop is not None and old.node is not None and new.node is not None

        def fail(replication: object) -> Node:
            raise ValueError("a bug")

        monkeypatch.setattr(new.node, "make_node", fail)
        old.loop.start(hand_over(old.node.member, new.name))
        schedule.run_until(lambda: bool(ends), 60)
        assert ends == ["this node cannot lead: ValueError: a bug"]


def brokers() -> int:
    """Return the number of brokers in memory."""
    gc.collect()
    return sum(isinstance(found, Broker) for found in gc.get_objects())


def formed(schedule: Schedule) -> tuple[list[SimulatedBroker], SimulatedBroker]:
    """Return three nodes that vote, and the one that leads."""
    nodes = start_nodes(Network(schedule), NAMES)
    schedule.run_until(lambda: all(is_voter(nodes, name) for name in NAMES), 60)
    return nodes, next(node for node in nodes if node.is_serving())


def hold_messages(leader: SimulatedBroker) -> None:
    """Put messages in flight: at consumers of a queue and a stream, and at holders of leases."""
    network, accounts = leader.network, Accounts()
    assert leader.loop is not None and leader.node is not None and leader.node.node is not None
    for queue in (QUEUE, STREAM):
        publisher = Publisher(network, queue, leader.url, accounts, MESSAGES, queue)
        leader.schedule.run_until(publisher.task.done, 60)
    for lease in (lease_job, lease_message):
        leader.loop.run(lease(leader.node.node))
    clients: list[Client] = [Holder(network, "h", leader.url, accounts)]
    clients.append(StreamReader(network, "r", leader.url, accounts))
    leader.schedule.run_until(lambda: accounts.delivered.total() > MESSAGES, 60)
    for client in clients:
        client.is_stopping = True  # it does not connect again


async def lease_job(node: Node) -> None:
    """Lease a job of the jobs service."""
    store = await node.jobs.store()
    await store.enqueue([NewJob(namespace="/", topic="t", payload=b"j")])
    assert len(await store.dequeue("/", "t", 1, 600_000, 0)) == 1


async def lease_message(node: Node) -> None:
    """Hold a message for a reader."""
    queue = node.broker.vhosts["/"].queues[QUEUE]
    epoch = await node.view.leases.take(queue, "reader", 1, 1, 1000, "sim")
    assert len(epoch.rows) == 1


def is_voter(nodes: list[SimulatedBroker], name: str) -> bool:
    """Return True if the leader serves clients, and counts this node as a voter."""
    leader = next((node.node for node in nodes if node.is_serving()), None)
    if leader is None:
        return False
    members = leader.member.status().members
    return any(member.name == name and member.role != "non-voter" for member in members)


async def hand_over(member: ClusterMember, name: str) -> None:
    await member.lead(name)
