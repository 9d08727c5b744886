"""A simulated cluster with its load, its checker and its faults."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

from leveret.cluster.errors import ClusterError
from leveret.cluster.member import ClusterMember
from leveret.cluster.raft.block import NORMAL
from leveret.cluster.raft.state import LEADER
from tests.cluster.simulation.checks import Checker
from tests.cluster.simulation.disk import Image
from tests.simulated.cluster.machine import SECRET, Machine, member_of
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

LOAD_S: Final = 0.02
CALM_S: Final = 120.0  # after all faults have ended, everything is well within this time


class CheckedSchedule(Schedule):
    """A schedule that checks the rules after every event."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.check: Callable[[], None] = _nothing

    def __enter__(self) -> Self:
        return self

    def step(self) -> bool:
        has_run = super().step()
        self.check()
        return has_run


def _nothing() -> None:
    """Check nothing: there is no world yet."""


class World:
    """Machines by name, and everything that has happened."""

    def __init__(self, schedule: CheckedSchedule, *names: str) -> None:
        self.schedule = schedule
        self.rng = schedule.rng
        self.network = Network(schedule)
        self._checkers: dict[bytes, Checker] = {}  # by cluster
        self.images: list[Image] = []  # of copies
        self.copies = 0  # that were installed
        self.confirmed: dict[int, bytes] = {}  # blocks that a leader had committed
        self._rafts: dict[str, object] = {}
        self._number = 0
        self.machines = {name: Machine(self, name, list(names)) for name in names}
        self.has_load = False
        schedule.check = self.check

    def add(self, name: str, peers: list[str], *, secret: bytes = SECRET) -> Machine:
        machine = self.machines[name] = Machine(self, name, peers, secret=secret)
        return machine

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def start_all(self) -> None:
        for machine in self.machines.values():
            if machine.loop is None:
                machine.start()

    # Rules

    def check(self) -> None:
        for machine in self.machines.values():
            self.check_one(machine)

    def check_one(self, machine: Machine) -> None:
        member = machine.member
        if member is None or member.host is None or member.host.has_ended:
            return
        raft = member.host.raft
        if self._rafts.get(machine.name) is not raft:
            self._rafts[machine.name] = raft
            self.checker(machine).on_start(raft, machine.disk)
        self.checker(machine).on_event(raft)

    def checker(self, machine: Machine) -> Checker:
        """Return the checker of the cluster that a node belongs to."""
        assert machine.member is not None
        return self._checkers.setdefault(machine.member.card().cluster, Checker())

    def on_confirmed(self, machine: Machine, index: int) -> None:
        """Note the blocks that a leader may tell its clients about."""
        at = index
        while at not in self.confirmed:
            block = machine.disk.durable.block(at)
            if block is None:
                return
            self.confirmed[at] = block.data
            at -= 1

    # Load

    def load(self) -> None:
        """Publish on all nodes that lead, or believe it, until `has_load` is taken away."""
        self.has_load = True
        self._publish()

    def _publish(self) -> None:
        if not self.has_load:
            return
        for machine in self.machines.values():
            for _ in range(self.rng.choice((0, 1, 1, 3))):
                self._number += 1
                size = self.rng.choice((1, 10, 200))
                machine.publish(b"%d " % self._number + bytes(size))
        self.schedule.after(self.rng.uniform(0, 2 * LOAD_S), self._publish)

    # Waiting

    def leader(self) -> Machine | None:
        """Return the node that leads in the highest term, once it leads with its log."""
        leading = [
            (int(machine.member.host.raft.term), machine)
            for machine in self.machines.values()
            if machine.member is not None
            and machine.member.host is not None
            and machine.member.host.is_leading
            and machine.member.host.raft.role == LEADER
        ]
        return max(leading, key=lambda row: row[0])[1] if leading else None

    def until(self, is_so: Callable[[], bool], within_s: float = CALM_S) -> None:
        self.schedule.run_until(is_so, within_s)

    def until_voters(self, *names: str) -> Machine:
        """Run until exactly these nodes vote, as their leader knows it."""
        self.until(lambda: self.voters() == sorted(names))
        leader = self.leader()
        assert leader is not None
        return leader

    def voters(self) -> list[str]:
        leader = self.leader()
        if leader is None or leader.member is None:
            return []
        members = leader.member.status().members
        return sorted(member.name for member in members if member.role != "non-voter")

    def is_even(self) -> bool:
        """Return True if all members have all blocks of a leader, synced and committed."""
        leader = self.leader()
        if leader is None or leader.member is None or leader.member.host is None:
            return False
        raft = leader.member.host.raft
        last = raft.log.last_index
        for member in leader.member.status().members:
            machine = self.machines[member.name]
            if machine.member is None or machine.member.host is None:
                return False
            status = machine.member.status().raft
            assert status is not None
            if (status.commit, status.synced, status.last) != (last, last, last):
                return False
            if member.role == "non-voter":
                return False
        return True

    def command(self, name: str, call: Callable[[ClusterMember], Coroutine[Any, Any, str]]) -> str:
        """Run a command of an operator at a node; return its sentence, or that of its refusal."""
        machine = self.machines[name]
        assert machine.loop is not None
        try:
            return machine.loop.run(call(member_of(machine)), within_s=60)
        except ClusterError as refusal:
            return f"refused: {refusal}"

    def is_led_by(self, machine: Machine) -> bool:
        return self.leader() is machine

    def calm(self) -> None:
        """End all faults, and wait until the cluster is well and goes on."""
        self.network.heal()
        for machine in self.machines.values():
            machine.hang_until_s = 0.0
        self.start_all()
        self.has_load = False
        self.until(self.is_even)
        leader = self.leader()
        assert leader is not None
        before = leader.published
        while leader.published == before:  # it may be handing over
            self.until(lambda: self.leader() is not None)
            leader = self.leader() or leader
            before = leader.published
            leader.publish(b"the last")
            self.schedule.run_for(LOAD_S)
        self.until(self.is_even)
        self.check_confirmed()

    def calm_without(self, refused: Machine) -> None:
        """Wait until the cluster is well without a node that was refused."""
        assert refused.name not in self.voters()
        refused.kill()
        del self.machines[refused.name]
        self.calm()

    def check_confirmed(self) -> None:
        """Nothing that was confirmed is lost or replaced."""
        leader = self.leader()
        assert leader is not None
        image = leader.disk.durable
        self.checker(leader).check_end(image)
        for index, data in self.confirmed.items():
            block = image.block(index)
            assert index <= image.base or (block is not None and block.data == data), index
            assert block is None or block.kind >= NORMAL


def started(schedule: CheckedSchedule, *names: str) -> tuple[World, Machine]:
    """Return a world whose nodes all vote, and its leader."""
    world = World(schedule, *names)
    world.start_all()
    return world, world.until_voters(*names)


def other_than(world: World, *machines: Machine) -> Machine:
    return next(machine for machine in world.machines.values() if machine not in machines)
