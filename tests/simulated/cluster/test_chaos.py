"""Random faults, joins and removals under load lose nothing that was confirmed."""

import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from leveret.cluster.errors import ClusterError
from leveret.cluster.member import ClusterMember
from tests.simulated.cluster.machine import member_of
from tests.simulated.cluster.world import CheckedSchedule, World, started

RUNS = 6  # seeds of the random schedule


class Chaos:
    """One random fault after the other, on a cluster under load."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng

    def step(self) -> None:
        world, rng = self.world, self.rng
        self.world.schedule.run_for(rng.uniform(0.0, 1.5))
        machine = rng.choice(list(world.machines.values()))
        other = rng.choice(list(world.machines.values()))
        kind = rng.randrange(10)
        if machine.loop is None:
            machine.start()
        elif kind == 0:
            machine.kill()
        elif kind == 1:
            machine.lose_power()
        elif kind == 2:
            world.network.cut(machine.name, other.name)
        elif kind == 3:
            for name in world.machines:
                world.network.cut(machine.name, name)
                world.network.cut(name, machine.name)
        elif kind == 4:
            world.network.reset(machine.name, other.name)
        elif kind == 5:
            machine.hang_until_s = world.schedule.now_s + rng.uniform(0, 4)
        elif kind == 6:
            machine.forget()
        elif kind == 7 and other.loop is not None and machine.cluster:
            assert machine.loop is not None
            machine.loop.start(_try(member_of(machine).lead(other.name)))
        else:
            world.network.heal()


async def _try(command: Coroutine[Any, Any, str]) -> None:
    with contextlib.suppress(ClusterError):
        await command


@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_confirmed_is_lost_under_random_faults(seed: int, run: int) -> None:
    number = seed * RUNS + run
    print(f"seed {number}")
    with CheckedSchedule(number) as schedule:
        world, _ = started(schedule, *(("a", "b", "c") if run % 3 else ("a", "b", "c", "d", "e")))
        world.load()
        chaos = Chaos(world)
        for _ in range(30):
            chaos.step()
        world.calm()
        assert len(world.confirmed) > 50


@pytest.mark.parametrize("run", range(2))
def test_nodes_join_and_leave_under_load_and_faults(seed: int, run: int) -> None:
    number = seed * 1000 + run
    print(f"seed {number}")
    with CheckedSchedule(number) as schedule:
        world, _ = started(schedule, "a", "b", "c")
        world.load()
        chaos = Chaos(world)
        for name in ("d", "e"):
            late = world.add(name, ["a", "b", "c", name])
            late.start()
            for _ in range(4):
                chaos.step()
        world.calm()
        world.until_voters("a", "b", "c", "d", "e")
        leader = world.leader()
        assert leader is not None
        world.load()
        for gone in ("a", "d"):
            assert leader is not None
            said = world.command(leader.name, partial(ClusterMember.remove, name=gone))
            assert said == f"node {gone} was removed from the cluster"
            world.until(world[gone].has_ended)
            world[gone].kill()
            del world.machines[gone]
            world.until(lambda: world.leader() is not None)
            leader = world.leader()
        world.calm()
        assert world.voters() == ["b", "c", "e"]


def test_same_seed_gives_the_same_run(seed: int) -> None:
    ends = []
    for _ in range(2):
        with CheckedSchedule(seed) as schedule:
            world, _ = started(schedule, "a", "b", "c")
            world.load()
            schedule.run_for(3)
            ends.append((schedule.now_s, schedule.events_run, sorted(world.confirmed.items())))
    assert ends[0] == ends[1]
