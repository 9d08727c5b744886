"""Nodes found a cluster, join it, leave it, and hand the lead over."""

from functools import partial

import pytest

from leveret.cluster.member import ClusterMember
from tests.simulated.cluster.machine import Machine, member_of
from tests.simulated.cluster.world import CheckedSchedule, World, other_than, started


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_nodes_that_start_in_any_order_found_one_cluster(
    schedule: CheckedSchedule, count: int
) -> None:
    names = ["a", "b", "c", "d", "e"][:count]
    world = World(schedule, *names)
    machines = list(world.machines.values())
    schedule.rng.shuffle(machines)
    for machine in machines:
        machine.start()
        schedule.run_for(schedule.rng.choice((0.0, 0.05, 1.0, 4.0)))
    world.until_voters(*names)
    assert len({machine.cluster for machine in machines}) == 1
    assert sorted(machine.number for machine in machines) == list(range(1, count + 1))
    world.calm()


def test_nodes_that_are_killed_while_they_found_still_found_one_cluster(seed: int) -> None:
    for run in range(10):
        with CheckedSchedule(seed + run) as schedule:
            print(f"seed {seed + run}")
            world = World(schedule, "a", "b", "c")
            world.start_all()
            for _ in range(4):
                schedule.run_for(schedule.rng.uniform(0.0, 0.4))
                machine = schedule.rng.choice(list(world.machines.values()))
                schedule.rng.choice((machine.kill, machine.lose_power))()
                schedule.run_for(schedule.rng.uniform(0.0, 0.4))
                machine.start()
            world.until_voters("a", "b", "c")
            assert len({machine.cluster for machine in world.machines.values()}) == 1
            world.calm()


def test_no_cluster_is_founded_while_a_listed_node_is_missing(schedule: CheckedSchedule) -> None:
    world = World(schedule, "a", "b", "c")
    world["a"].start()
    world["b"].start()
    schedule.run_for(30)
    for name in ("a", "b"):
        member = world[name].member
        assert member is not None
        assert member.status().waiting_for == "it waits for connections with the nodes c"
        assert member.status().raft is None
    world["c"].start()
    world.until_voters("a", "b", "c")


def test_halves_of_a_network_found_nothing_until_it_is_whole(schedule: CheckedSchedule) -> None:
    world = World(schedule, "a", "b", "c", "d")
    for one, other in ("ac", "ad", "bc", "bd"):
        world.network.cut(one, other)
        world.network.cut(other, one)
    world.start_all()
    schedule.run_for(20)
    assert {machine.cluster for machine in world.machines.values()} == {b""}
    world.network.heal()
    world.until_voters("a", "b", "c", "d")


def test_a_directory_of_a_node_alone_becomes_a_cluster_and_grows(
    schedule: CheckedSchedule,
) -> None:
    world = World(schedule, "a", "b", "c")
    world["c"].has_data = True  # not the first name
    world["c"].start()
    world.until(lambda: world.leader() is world["c"])
    world.load()
    schedule.run_for(1)
    world["a"].start()
    world["b"].start()
    world.until_voters("a", "b", "c")
    assert world["c"].number == 1
    world.calm()


def test_a_new_node_joins_though_nobody_lists_it(schedule: CheckedSchedule) -> None:
    world, _ = started(schedule, "a", "b", "c")
    world.load()
    late = world.add("A", ["A", "a", "b", "c"])  # its name sorts first, so it is to be dialed
    late.start()
    world.until_voters("A", "a", "b", "c")
    assert late.number == 4
    world.calm()


def test_a_node_joins_a_leader_that_neither_lists_it_nor_is_listed(
    schedule: CheckedSchedule,
) -> None:
    world, _ = started(schedule, "a", "b", "c")
    for name in ("d", "e"):
        world.add(name, ["a", "b", "c", name]).start()
        world.until_voters(*world.machines)
        world.until(world.is_even)
        said = world.command("a", partial(ClusterMember.lead, name="d"))
        assert said in ("node d takes the lead", "node d leads already")
        world.until(lambda: world.is_led_by(world["d"]))
    assert world["e"].number == 5


def test_a_node_whose_addition_was_undone_is_added_again(schedule: CheckedSchedule) -> None:
    world, old = started(schedule, "a", "b", "c")
    others = [machine for machine in world.machines.values() if machine is not old]
    late = world.add("d", ["a", "b", "c", "d"])
    for other in others:  # only the old leader meets the new node, and no other disk has that block
        cut_off(world, other, late)
        other.hang_until_s = schedule.now_s + 60.0
    late.start()
    world.until(lambda: names_in_log(old) == ["a", "b", "c", "d"])
    for other in others:
        cut_off(world, other, old)
        other.lose_power()
        other.hang_until_s = 0.0
        other.start()
    world.until(lambda: world.leader() not in (None, old))
    world.network.heal()
    for other in others:
        cut_off(world, other, late)
    world.until(lambda: names_in_log(old) == ["a", "b", "c"])
    leader = world.leader()
    assert leader is not None
    world.until(lambda: "d" in names_in_log(leader))
    world.network.heal()
    world.until_voters("a", "b", "c", "d")
    world.calm()


def cut_off(world: World, one: Machine, other: Machine) -> None:
    world.network.cut(one.name, other.name)
    world.network.cut(other.name, one.name)


def names_in_log(machine: Machine) -> list[str]:
    """Return the members in the log of a node, committed or not."""
    host = member_of(machine).host
    return sorted(each.name for each in host.raft.log.members().members.values()) if host else []


def test_a_removed_node_ends_and_its_number_is_never_given_again(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    gone = other_than(world, leader)
    asked = other_than(world, leader, gone)  # not the leader: it passes the request on
    said = world.command(asked.name, lambda member: member.remove(gone.name))
    assert said == f"node {gone.name} was removed from the cluster"
    world.until(lambda: gone.ended != "")
    assert f"node {gone.name} was removed from the cluster: stop it" in gone.ended
    number = gone.number
    gone.kill()
    gone.start()  # with its old directory
    world.until(lambda: gone.ended != "")
    gone.kill()
    gone.wipe()
    gone.start()
    world.until_voters("a", "b", "c")
    assert gone.number > max(3, number)
    world.calm()


def test_a_leader_that_is_removed_lets_another_lead(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    said = world.command(leader.name, lambda member: member.remove(leader.name))
    assert said == f"node {leader.name} was removed from the cluster"
    world.until(lambda: leader.ended != "" and world.leader() not in (None, leader))
    leader.kill()
    del world.machines[leader.name]
    world.until(world.is_even)
    assert len(world.voters()) == 2


def test_a_removal_that_would_cost_the_majority_is_refused(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    dead = other_than(world, leader)
    alive = other_than(world, leader, dead)
    dead.kill()
    schedule.run_for(3)
    said = world.command(leader.name, lambda member: member.remove(alive.name))
    reason = f"without node {alive.name}, 1 of 2 voters would be reached, and 2 are needed"
    assert said.startswith(f"refused: {reason}")
    said = world.command(leader.name, lambda member: member.remove("x"))
    assert said == "refused: node x is no member; the members are a, b, c"
    said = world.command(leader.name, lambda member: member.remove(dead.name))
    assert said == f"node {dead.name} was removed from the cluster"


def test_the_lead_is_handed_over_by_command_at_any_node(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(1)
    for _ in range(3):
        target = other_than(world, leader)
        asked = schedule.rng.choice(list(world.machines.values()))
        began_s = schedule.now_s
        name = target.name
        said = world.command(asked.name, partial(ClusterMember.lead, name=name))
        assert said == f"node {name} takes the lead"
        world.until(partial(world.is_led_by, target))
        assert schedule.now_s - began_s < 1.0  # of it up to 0.3 s for recovery
        leader = target
    said = world.command(leader.name, lambda member: member.lead(leader.name))
    assert said == f"node {leader.name} leads already"
    assert world.command(leader.name, lambda member: member.hand_over())
    world.until(lambda: world.leader() not in (None, leader))
    world.calm()


def test_a_command_without_a_leader_is_refused(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    left = other_than(world, leader)
    leader.kill()
    other_than(world, leader, left).kill()
    schedule.run_for(5)
    said = world.command(left.name, lambda member: member.lead(left.name))
    assert said == "refused: no node leads at the moment: try again"


def test_status_tells_how_far_each_member_is(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    away = other_than(world, leader)
    away.kill()
    world.load()
    schedule.run_for(3)
    status = member_of(leader).status()
    assert status.raft is not None
    assert (status.raft.role, status.raft.leader) == ("leader", leader.name)
    rows = {member.name: member for member in status.members}
    other = other_than(world, leader, away)
    assert (rows[away.name].lag_blocks or 0) > 0
    assert (rows[away.name].heard_s or 0) > 2
    assert (rows[other.name].match or 0) > 0
    assert [rows[m.name].is_connected for m in (away, other, leader)] == [False, True, True]
    assert rows[leader.name].role == "leader"
    seen = {member.name: member for member in member_of(other).status().members}
    assert seen[away.name].match is None
    assert seen[leader.name].role == "leader"
