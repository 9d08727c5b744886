"""Clients at other nodes do not wait long for a leader that is frozen and says nothing."""

from collections.abc import Callable

from tests.simulated.clients import Accounts, Publisher
from tests.simulated.cluster.broker_node import SimulatedBroker, start_nodes
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
FROZEN_S = 60.0
WITHIN_S = 5.0  # an election takes up to two seconds


def quiet_url(node: SimulatedBroker) -> Callable[[], str]:
    """Return the address of a node without heartbeats, by which a client would notice silence."""
    return lambda: node.url().partition("?")[0]


def test_client_of_a_frozen_leader_is_served_again_soon(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        network = Network(schedule)
        nodes = start_nodes(network, NAMES)
        schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
        schedule.run_for(5.0)
        leader = next(node for node in nodes if node.is_serving())
        accounts = Accounts()
        for node in nodes:
            if node is not leader:
                Publisher(network, f"p{node.name}", quiet_url(node), accounts, 1_000_000)
        schedule.run_for(2.0)
        assert accounts.confirmed
        assert leader.loop is not None
        leader.loop.paused_until_s = schedule.now_s + FROZEN_S
        schedule.run_for(0.1)
        publishers = {body[:2] for body in accounts.confirmed}
        assert len(publishers) == 2
        before = set(accounts.confirmed)
        schedule.run_until(
            lambda: {body[:2] for body in accounts.confirmed - before} == publishers, WITHIN_S
        )
