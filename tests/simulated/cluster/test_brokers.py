"""Three whole nodes in a simulated world: no confirmed message is lost, whatever ends."""

import pytest

from tests.simulated.clients import Accounts, Consumer, Publisher
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
MESSAGES = 100


def _run(schedule: Schedule, ends: int) -> Accounts:
    network = Network(schedule)
    nodes = [SimulatedBroker(network, name, NAMES) for name in NAMES]
    for node in nodes:
        node.start()
    schedule.run_until(lambda: any(node.is_serving() for node in nodes), 60)
    accounts = Accounts()

    def choose_url() -> str:
        return schedule.rng.choice(nodes).url()

    publishers = [Publisher(network, f"p{n}", choose_url, accounts, MESSAGES) for n in range(2)]
    Consumer(network, "c0", choose_url, accounts)
    for _ in range(ends):
        schedule.run_for(schedule.rng.uniform(0.0, 2.0))
        node = schedule.rng.choice(nodes)
        schedule.rng.choice((node.kill, node.lose_power, node.stop))()
        schedule.run_for(schedule.rng.uniform(0.0, 2.0))
        node.start()
    schedule.run_until(lambda: all(p.task.done() for p in publishers), 600)
    schedule.run_until(lambda: not accounts.lost(), 600)
    return accounts


@pytest.mark.parametrize("run", range(3))
def test_confirmed_messages_survive_the_end_of_any_node(seed: int, run: int) -> None:
    print(f"seed {seed + run}")
    with Schedule(seed + run) as schedule:
        accounts = _run(schedule, ends=4)
    assert accounts.lost() == set()
    assert accounts.invented() == set()
    assert len(accounts.confirmed) > MESSAGES
