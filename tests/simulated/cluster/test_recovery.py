"""A new leader whose recovery takes longer than an election, on disks that are slow to read.

All messages of the log are acked: a recovery has to read them, and nothing else does.
"""

import pytest

from leveret.storage import recovery_files
from tests.simulated.clients import Accounts, Consumer, Publisher
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.disk import SimulatedDisk
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

NAMES = ["a", "b", "c"]
MESSAGES = 400  # acked before the recovery
MORE_MESSAGES = 20  # published after it
STEPS = 50  # of a recovery
RECOVERY_S = 10.0  # many times an election timeout
SLOW_SYNC_S = 90.0  # longer than a request waits for the disk


class SlowDisk(SimulatedDisk):
    """A disk whose reads block the loop."""

    byte_s = 0.0

    def read_file(self, number: int, size: int, offset: int) -> bytes:
        data = super().read_file(number, size, offset)
        self.loop.block(len(data) * self.byte_s)
        return data


class Trio:
    """Three nodes with messages in their logs."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.network = Network(schedule)
        self.accounts = Accounts()
        self.nodes = [SimulatedBroker(self.network, name, NAMES) for name in NAMES]
        for node in self.nodes:
            node.disk = SlowDisk()
            node.start()
        schedule.run_until(self.have_all, 60)
        self.publish(MESSAGES)
        Consumer(self.network, "c", self.choose_url, self.accounts)
        schedule.run_until(lambda: not self.accounts.lost() and self.have_all(), 60)
        schedule.run_for(1.0)  # acks are written a little later

    def publish(self, count: int) -> None:
        publisher = Publisher(self.network, f"p{count}", self.choose_url, self.accounts, count)
        self.schedule.run_until(publisher.task.done, 60)

    def choose_url(self) -> str:
        return self.schedule.rng.choice(self.nodes).url()

    def have_all(self) -> bool:
        """Return True if all nodes vote, and have all blocks."""
        leader = next((node.node for node in self.nodes if node.is_serving()), None)
        if leader is None:
            return False
        members = leader.member.status().members
        return len(members) == len(NAMES) and all(
            member.role != "non-voter" and not member.lag_blocks for member in members
        )

    def leader(self) -> SimulatedBroker:
        return next(node for node in self.nodes if node.is_serving())

    def slow_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let reading all of a node's log take `RECOVERY_S`, in steps."""
        files = self.leader().disk.contents()
        size = max(len(data) for name, data in files.items() if name.endswith(".log"))
        monkeypatch.setattr(recovery_files, "STEP_BYTES", size // STEPS)
        for node in self.nodes:
            assert isinstance(node.disk, SlowDisk)
            node.disk.byte_s = RECOVERY_S / size

    def speed_up(self) -> None:
        for node in self.nodes:
            assert isinstance(node.disk, SlowDisk)
            node.disk.byte_s = 0.0

    def check(self) -> None:
        """Publish again: no confirmed message is lost, and none is invented."""
        self.publish(MORE_MESSAGES)
        self.schedule.run_until(lambda: not self.accounts.lost(), 60)
        assert len(self.accounts.confirmed) >= MORE_MESSAGES
        assert not self.accounts.invented()


def is_recovering(node: SimulatedBroker) -> bool:
    return node.node is not None and node.node.node is not None and not node.is_serving()


def test_leader_sends_heartbeats_while_it_recovers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        trio = Trio(schedule)
        trio.slow_down(monkeypatch)
        old = trio.leader()
        old.kill()
        others = [node for node in trio.nodes if node is not old]
        schedule.run_until(lambda: any(is_recovering(node) for node in others), 60)
        (new,) = [node for node in others if is_recovering(node)]
        old.start()  # two nodes could elect another leader
        assert new.node is not None
        term = new.node.member.term
        schedule.run_until(new.is_serving, 2 * RECOVERY_S)
        assert new.node.member.term == term
        trio.speed_up()
        trio.check()


def test_node_that_loses_its_lead_while_it_recovers_drops_the_broker_and_follows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        trio = Trio(schedule)
        trio.slow_down(monkeypatch)
        trio.leader().stop()
        schedule.run_until(lambda: any(is_recovering(node) for node in trio.nodes), 60)
        (new,) = [node for node in trio.nodes if is_recovering(node)]
        for node in trio.nodes:
            if node.loop is None:
                node.start()
        schedule.run_for(RECOVERY_S / 4)
        assert is_recovering(new)
        for name in NAMES:
            if name != new.name:
                trio.network.cut(new.name, name)
        schedule.run_until(lambda: not is_recovering(new), RECOVERY_S / 2)
        assert not new.is_serving()
        trio.network.heal()
        trio.speed_up()
        schedule.run_until(lambda: any(node.is_serving() for node in trio.nodes), 60)
        trio.check()


def test_leader_waits_as_long_as_it_leads_for_the_commit_of_its_first_block(seed: int) -> None:
    print(f"seed {seed}")
    with Schedule(seed) as schedule:
        trio = Trio(schedule)
        old = trio.leader()
        old.kill()
        others = [node for node in trio.nodes if node is not old]
        schedule.run_until(lambda: any(is_recovering(node) for node in others), 60)
        for node in others:
            if not is_recovering(node):
                node.disk.hang_s = SLOW_SYNC_S
        schedule.run_for(SLOW_SYNC_S)
        assert not any(node.is_serving() for node in others)
        for node in others:
            node.disk.hang_s = 0.0
        schedule.run_until(lambda: any(node.is_serving() for node in others), 60)
        old.start()
        trio.check()
