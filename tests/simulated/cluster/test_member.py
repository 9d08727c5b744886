"""Clusters of real members and links in a simulated world: failures, and a relay."""

import asyncio

from leveret.cluster.host import TICK_S
from leveret.cluster.member import ClusterMember
from leveret.cluster.relay import AMQP, RelayHead, attach
from tests.simulated.cluster.machine import Machine, member_of
from tests.simulated.cluster.world import CheckedSchedule, other_than, started


def last_index(machine: Machine) -> int:
    host = member_of(machine).host
    assert host is not None
    return int(host.raft.log.last_index)


def test_three_nodes_commit_blocks_and_agree(schedule: CheckedSchedule) -> None:
    world, _ = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(5)
    world.calm()
    assert len(world.confirmed) > 100


def test_blocks_that_are_held_back_follow_long_before_the_next_tick(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.until(world.is_even)
    for _ in range(5):
        began_s = schedule.now_s
        leader.publish(b"x")
        world.until(lambda: len({last_index(each) for each in world.machines.values()}) == 1)
        assert schedule.now_s - began_s < TICK_S / 2
        schedule.run_for(TICK_S)


def test_a_killed_leader_is_replaced_at_once(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    leader.publish(b"before")
    world.until(world.is_even)
    began_s = schedule.now_s
    leader.kill()
    world.until(lambda: world.leader() not in (None, leader))
    # Its links are closed: nobody waits for an election timeout of a second.
    assert schedule.now_s - began_s < 1.0
    world.calm()


def test_a_silent_leader_is_replaced_after_the_election_timeout(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    leader.lose_power()
    world.until(lambda: world.leader() not in (None, leader), 10)
    world.calm()


def test_a_leader_whose_disk_hangs_lets_another_lead(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(1)
    leader.hang_until_s = schedule.now_s + 20
    world.until(lambda: world.leader() not in (None, leader), 10)
    before = len(world.confirmed)
    schedule.run_for(3)
    assert len(world.confirmed) > before
    world.calm()


def test_a_leader_in_the_minority_confirms_nothing_and_steps_down(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(1)
    for machine in world.machines.values():
        world.network.cut(leader.name, machine.name)
        world.network.cut(machine.name, leader.name)
    schedule.run_for(5)
    assert leader.leaders[-1] == ""
    assert world.leader() not in (None, leader)
    status = member_of(leader).status().raft
    assert status is not None
    assert (status.role, status.leader) != ("leader", leader.name)
    world.calm()


def test_a_follower_that_was_away_is_fed_from_files_or_by_a_copy(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    for has_files in (True, False):
        follower.kill()
        world.load()
        schedule.run_for(3)
        world.has_load = False
        schedule.run_for(1)
        if not has_files:
            leader.forget()
        follower.start()
        world.until(world.is_even)
        assert (world.copies > 0) == (not has_files)
    world.check_confirmed()


def test_power_failure_of_all_nodes_loses_nothing(schedule: CheckedSchedule) -> None:
    world, _ = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(2)
    for machine in world.machines.values():
        machine.lose_power()
    world.calm()


def test_only_the_leader_takes_relayed_clients(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    head = RelayHead(AMQP, "10.0.0.7", 40_000, "10.0.0.1", 5672)

    async def relay(member: ClusterMember, target: str) -> str:
        transport, rest = await member.links.open_relay(target, head, b"AMQP")
        attach(transport, asyncio.Protocol(), rest)
        return "open"

    assert world.command(follower.name, lambda member: relay(member, leader.name)) == "open"
    world.until(lambda: leader.relays == [head])
    other = other_than(world, leader, follower)
    said = world.command(follower.name, lambda member: relay(member, other.name))
    assert said.startswith("refused: ")
    assert f"node {other.name} does not lead" in said
