"""The faults of a run (`storm`), one after the other at random times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from leveret.cluster.errors import ClusterError
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.cluster.storm import Storm, heal_disk

FAULTS: Final = 12  # of one run
PAUSE_S_MAX: Final = 1.5  # between two of them
FULL_BYTES: Final = 1  # the size of a disk that is full

Fault = Callable[[Storm, SimulatedBroker], None]


def run(seed: int) -> Storm:
    """Run a cluster under faults; raise AssertionError if a rule is broken."""
    storm = Storm(seed)
    with storm.schedule:
        storm.form()
        storm.begin_clients()
        for _ in range(FAULTS):
            storm.run_for(storm.rng.uniform(0.0, PAUSE_S_MAX))
            step(storm)
        storm.calm()
        storm.check_end()
    return storm


def step(storm: Storm) -> None:
    """Let a fault happen to a machine, or start its process if it does not run."""
    machine = storm.rng.choice(storm.machines)
    if machine is storm.wiped:
        return
    if machine.loop is None:
        storm.note(f"{machine.name} starts")
        machine.start()
        return
    fault = storm.rng.choice(ALL)
    storm.note(f"{machine.name}: {fault.__name__}")
    fault(storm, machine)


def kill(storm: Storm, machine: SimulatedBroker) -> None:
    machine.kill()


def kill_and_start(storm: Storm, machine: SimulatedBroker) -> None:
    machine.kill()
    machine.start()


def lose_power(storm: Storm, machine: SimulatedBroker) -> None:
    machine.lose_power()


def lose_all_power(storm: Storm, machine: SimulatedBroker) -> None:
    for other in storm.machines:
        if other.loop is not None:
            other.lose_power()
    for other in storm.machines:
        if other is not storm.wiped:
            other.start()


def stop(storm: Storm, machine: SimulatedBroker) -> None:
    """Stop a node in order, while everything else goes on."""
    loop, node = machine.loop, machine.node
    if loop is None or node is None or machine.member is None:
        return
    stopping = loop.start(node.stop())

    def on_stopped(_: object) -> None:
        if machine.loop is loop:
            machine.kill()

    stopping.add_done_callback(on_stopped)


def pause(storm: Storm, machine: SimulatedBroker) -> None:
    """Stop a process for a while (SIGSTOP)."""
    assert machine.loop is not None
    machine.loop.paused_until_s = storm.schedule.now_s + storm.rng.uniform(0.0, 6.0)


def cut_one_way(storm: Storm, machine: SimulatedBroker) -> None:
    storm.network.cut(machine.name, storm.rng.choice(storm.names))


def isolate(storm: Storm, machine: SimulatedBroker) -> None:
    """Cut a node off the others, but not off its clients."""
    for name in storm.names:
        storm.network.cut(machine.name, name)
        storm.network.cut(name, machine.name)


def make_mute(storm: Storm, machine: SimulatedBroker) -> None:
    """Let a node hear the others, but not be heard."""
    for name in storm.names:
        storm.network.cut(machine.name, name)


def slow_link(storm: Storm, machine: SimulatedBroker) -> None:
    storm.network.slow(machine.name, storm.rng.choice(storm.names), storm.rng.uniform(0.0, 0.5))


def reset(storm: Storm, machine: SimulatedBroker) -> None:
    storm.network.reset(machine.name, storm.rng.choice(storm.names))


def heal(storm: Storm, machine: SimulatedBroker) -> None:
    storm.network.heal()
    for other in storm.machines:
        heal_disk(other)


def hang_disk(storm: Storm, machine: SimulatedBroker) -> None:
    machine.disk.hang_s = 0.2
    _heal_later(storm, machine, 4.0)


def slow_disk(storm: Storm, machine: SimulatedBroker) -> None:
    machine.disk.slowness = storm.rng.choice((10.0, 50.0, 200.0))
    _heal_later(storm, machine, 10.0)


def fill_disk(storm: Storm, machine: SimulatedBroker) -> None:
    machine.disk.capacity_bytes = FULL_BYTES
    _heal_later(storm, machine, 8.0)


def _heal_later(storm: Storm, machine: SimulatedBroker, within_s: float) -> None:
    storm.schedule.after(storm.rng.uniform(0.0, within_s), lambda: heal_disk(machine))


def fail_sync(storm: Storm, machine: SimulatedBroker) -> None:
    machine.disk.fail_sync(nth=storm.rng.randrange(1, 10))


def set_clock(storm: Storm, machine: SimulatedBroker) -> None:
    machine.clock.skew_ms = storm.rng.randrange(-100_000, 100_000)


def hand_over(storm: Storm, machine: SimulatedBroker) -> None:
    """Let an operator give the lead to a node."""
    leader = storm.leader()
    if leader is None or leader.loop is None or leader.node is None:
        return
    member = leader.node.member

    async def lead() -> None:
        with contextlib.suppress(ClusterError):
            await member.lead(machine.name)

    leader.loop.start(lead())


def hand_over_and_lose(storm: Storm, machine: SimulatedBroker) -> None:
    """Give the lead to a node that is killed before it can take it."""
    leader = storm.leader()
    if leader is None or leader.node is None or machine.member is None:
        return
    host = leader.node.member.host
    if host is not None:
        with contextlib.suppress(ClusterError):
            host.transfer(machine.member.card().number)
    machine.kill()


def wipe(storm: Storm, machine: SimulatedBroker) -> None:
    """Lose a directory while all others are well, and replace the node."""
    if storm.wiped is None and storm.is_even():
        storm.replace_wiped(machine)


ALL: Final[tuple[Fault, ...]] = (
    kill,
    kill,
    kill_and_start,
    lose_power,
    lose_power,
    lose_all_power,
    stop,
    stop,
    pause,
    cut_one_way,
    isolate,
    make_mute,
    slow_link,
    reset,
    heal,
    heal,
    hang_disk,
    slow_disk,
    fill_disk,
    fill_disk,
    fail_sync,
    set_clock,
    hand_over,
    hand_over_and_lose,
    wipe,
)
