"""A whole node in a simulated world: kills and power losses lose no confirmed message."""

import hashlib

import pytest

from tests.simulated.clients import Accounts, Consumer, Publisher
from tests.simulated.network import Network
from tests.simulated.node import SimulatedNode
from tests.simulated.schedule import Schedule

MESSAGES = 150


def _run(seed: int, ends: int) -> tuple[Accounts, Schedule]:
    """Publish and consume while the node ends in some way again and again."""
    with Schedule(seed) as schedule:
        accounts = _publish_and_consume(schedule, ends)
    return accounts, schedule


def _publish_and_consume(schedule: Schedule, ends: int) -> Accounts:
    network = Network(schedule)
    node = SimulatedNode(network, "a")
    node.start()
    accounts = Accounts()
    publishers = [
        Publisher(network, f"p{number}", node.url, accounts, MESSAGES) for number in range(2)
    ]
    Consumer(network, "c", node.url, accounts)
    for _ in range(ends):
        schedule.run_for(schedule.rng.uniform(0.0, 0.3))
        schedule.rng.choice((node.kill, node.lose_power, node.stop))()
        schedule.run_for(schedule.rng.uniform(0.0, 0.3))
        node.start()
    schedule.run_until(lambda: all(p.task.done() for p in publishers), 300)
    schedule.run_until(lambda: not accounts.lost(), 300)
    return accounts


@pytest.mark.parametrize("run", range(5))
def test_confirmed_messages_survive_kills_and_power_losses(seed: int, run: int) -> None:
    print(f"seed {seed + run}")
    accounts, _ = _run(seed + run, ends=4)
    assert accounts.lost() == set()
    assert accounts.invented() == set()
    assert len(accounts.confirmed) > MESSAGES


def test_same_seed_gives_the_same_run(seed: int) -> None:
    digests = []
    for _ in range(2):
        accounts, schedule = _run(seed, ends=2)
        seen = repr((schedule.now_s, schedule.events_run, sorted(accounts.delivered.items())))
        digests.append(hashlib.sha256(seen.encode()).hexdigest())
    assert digests[0] == digests[1]


def test_idle_node_notices_a_disk_that_other_programs_fill(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Schedule(seed) as schedule:
        node = SimulatedNode(Network(schedule), "a")
        node.start()
        schedule.run_for(60)
        caplog.clear()
        node.disk.capacity_bytes = node.disk.used_bytes()
        schedule.run_for(60)
        (alarm,) = (record.message for record in caplog.records)
        assert alarm.startswith("alarm on: publishers are blocked: the disk of the data directory")
        assert "free space on it" in alarm
        node.disk.capacity_bytes = None
        schedule.run_for(2)
        assert caplog.records[-1].message == "alarm off: publishers go on"
