"""Operators drain nodes, and see what is wrong with a cluster and what to do about it."""

import logging
from collections.abc import Callable
from functools import partial

import pytest

from leveret.cluster.faults import DEGRADED, NOTE, STOPPED, Fault, find_faults
from leveret.cluster.member import ClusterMember
from leveret.cluster.raft.members import NOBODY
from tests.simulated.cluster.machine import Machine, member_of
from tests.simulated.cluster.world import CheckedSchedule, World, other_than, started


def faults_at(machine: Machine) -> list[Fault]:
    return find_faults(member_of(machine).status())


def test_a_drained_leader_hands_over_and_does_not_lead_again(schedule: CheckedSchedule) -> None:
    world, first = started(schedule, "a", "b", "c")
    world.load()
    asked = other_than(world, first)
    said = world.command(asked.name, partial(ClusterMember.drain, name=first.name))
    assert said.startswith(f"node {first.name} is drained")
    for _ in range(3):
        world.until(lambda: world.leader() is not None)
        leader = world.leader()
        assert leader is not None and leader is not first
        leader.kill()
        world.until(lambda: world.leader() not in (None, first))
        leader.start()
        world.until(world.is_even)
    said = world.command(asked.name, partial(ClusterMember.lead, name=first.name))
    assert said == (
        f"refused: node {first.name} is drained: "
        f"run `leveret ctl cluster revive {first.name}` first"
    )
    said = world.command(asked.name, partial(ClusterMember.revive, name=first.name))
    assert said == f"node {first.name} may lead again"
    world.command(asked.name, partial(ClusterMember.lead, name=first.name))
    world.until(lambda: world.is_led_by(first))
    world.calm()


def test_the_leader_knows_at_once_who_is_drained(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.until(world.is_even)
    name = other_than(world, leader).name
    world.command(leader.name, partial(ClusterMember.drain, name=name))
    said = world.command(leader.name, partial(ClusterMember.lead, name=name))
    assert said.startswith(f"refused: node {name} is drained")
    schedule.run_for(1)  # for a heartbeat that tells the leader
    world.command(leader.name, partial(ClusterMember.revive, name=name))
    said = world.command(leader.name, partial(ClusterMember.lead, name=name))
    assert said == f"node {name} takes the lead"


def test_a_node_that_is_not_reached_is_not_let_to_lead(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.until(world.is_even)
    name = other_than(world, leader).name
    world.network.cut(leader.name, name)
    said = world.command(leader.name, partial(ClusterMember.lead, name=name))
    assert said == f"refused: node {name} did not answer within 2 s"
    assert world.is_led_by(leader)


def test_a_leader_goes_on_after_a_hand_over_that_was_given_up(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.until(world.is_even)
    target = other_than(world, leader)
    world.network.cut(leader.name, target.name)
    host = member_of(leader).host
    assert host is not None
    host.transfer(member_of(target).card().number)
    world.until(lambda: host.raft.transfer_target == NOBODY)
    # No block is under way whose commit could wake the log, and no client sends anything.
    assert world.is_led_by(leader)
    assert leader.resumed == 1


def test_a_drained_node_leads_if_no_other_node_can(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    drained = other_than(world, leader)
    behind = other_than(world, leader, drained)
    world.command(leader.name, partial(ClusterMember.drain, name=drained.name))
    behind.kill()
    world.load()
    schedule.run_for(2)  # only the leader and the drained node have these blocks
    leader.kill()
    behind.start()
    world.until(lambda: world.is_led_by(drained))


def test_the_last_node_that_may_lead_is_not_drained(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    for machine in list(world.machines.values()):
        if machine is not leader:
            world.command(leader.name, partial(ClusterMember.drain, name=machine.name))
    schedule.run_for(1)  # for heartbeats that tell the leader
    said = world.command(leader.name, partial(ClusterMember.drain, name=leader.name))
    assert said == (
        f"refused: node {leader.name} leads, and no other node that votes is alive and not "
        "drained: start or revive another node first"
    )
    assert world.is_led_by(leader)
    said = world.command(leader.name, partial(ClusterMember.drain, name="x"))
    assert said == "refused: node x is no member; the members are a, b, c"


def test_a_healthy_cluster_has_no_faults(schedule: CheckedSchedule) -> None:
    world, _ = started(schedule, "a", "b", "c")
    schedule.run_for(5)
    for machine in world.machines.values():
        status = member_of(machine).status()
        assert (status.voters_reached, status.voters_needed, status.voters_spare) == (3, 2, 1)
        assert status.raft is not None
        assert status.raft.leader_s > 4
        assert find_faults(status) == []


def test_a_lost_node_and_a_lost_majority_are_told_with_what_to_do(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    away = other_than(world, leader)
    left = other_than(world, leader, away)
    away.kill()
    schedule.run_for(30)
    for machine in (leader, left):
        (fault,) = faults_at(machine)
        assert (fault.severity, fault.node) == (DEGRADED, away.name)
        assert f"leveret ctl cluster remove {away.name}" in fault.advice
        status = member_of(machine).status()
        row = next(member for member in status.members if member.name == away.name)
        assert row.unreached_s is not None and 25 < row.unreached_s < 31
        assert status.voters_spare == 0
    leader.kill()
    schedule.run_for(5)
    fault = faults_at(left)[0]
    assert fault.severity == STOPPED
    assert fault.fault == "no node leads: 1 of 3 voters are reached, and 2 are needed"
    assert "leveret ctl cluster rescue" in fault.advice
    assert all("remove" not in fault.advice for fault in faults_at(left))


def test_a_leader_does_not_reach_a_node_that_is_connected_but_silent(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    silent = other_than(world, leader)
    world.network.cut(silent.name, leader.name)
    schedule.run_for(2.5)
    rows = {member.name: member for member in member_of(leader).status().members}
    assert not rows[silent.name].is_connected
    assert (rows[silent.name].unreached_s or 0) > 1


def test_lag_is_told_in_blocks_and_bytes(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    away = other_than(world, leader)
    other = other_than(world, leader, away)
    schedule.run_for(1)
    away.kill()
    other.kill()
    world.load()
    schedule.run_for(0.5)  # too short to miss the majority: the leader keeps all new blocks
    for machine in (away, other):
        rows = {member.name: member for member in member_of(leader).status().members}
        row = rows[machine.name]
        assert (row.lag_blocks or 0) > 0
        assert (row.lag_bytes or 0) > 0


def test_a_new_node_says_what_it_waits_for(schedule: CheckedSchedule) -> None:
    world = World(schedule, "a", "b", "c")
    world["a"].start()
    schedule.run_for(1)
    (fault,) = faults_at(world["a"])
    assert fault.severity == STOPPED
    assert "it waits for connections with the nodes b, c" in fault.fault


def test_a_drained_node_is_a_note_at_the_leader(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    drained = other_than(world, leader)
    world.command(leader.name, partial(ClusterMember.drain, name=drained.name))
    schedule.run_for(1)
    (fault,) = faults_at(leader)
    assert (fault.severity, fault.node) == (NOTE, drained.name)
    assert f"leveret ctl cluster revive {drained.name}" in fault.advice


def test_a_node_that_was_removed_is_not_taken_for_a_new_one(schedule: CheckedSchedule) -> None:
    """The nodes were new when they connected, and their links still say so."""
    world, leader = started(schedule, "a", "b", "c")
    silent = other_than(world, leader)
    other = other_than(world, leader, silent)
    world.until(world.is_even)
    for machine in (leader, other):
        world.network.cut(silent.name, machine.name)  # it does not close its links
    world.command(leader.name, partial(ClusterMember.remove, name=silent.name))
    schedule.run_for(2)
    names = [member.name for member in member_of(leader).status().members]
    assert sorted(names) == sorted([leader.name, other.name])


def test_a_cluster_of_one_names_the_listed_nodes_that_did_not_join(
    schedule: CheckedSchedule,
) -> None:
    world = World(schedule, "a", "b", "c")
    alone = world["a"]
    alone.has_data = True  # so it waits for nobody
    alone.start()
    world.until(lambda: world.is_led_by(alone))
    (fault,) = faults_at(alone)
    assert fault.severity == DEGRADED
    assert fault.fault == (
        "the nodes b, c of --cluster-peers did not join the cluster, so confirmed messages are on "
        "the disk of node a only"
    )
    world["b"].start()
    world.until_voters("a", "b")
    (fault,) = faults_at(alone)
    assert (fault.severity, fault.fault) == (
        NOTE,
        "node c of --cluster-peers did not join the cluster",
    )
    world["c"].start()
    world.until_voters("a", "b", "c")
    assert faults_at(alone) == []


def test_a_node_that_is_cut_off_from_its_leader_only_does_not_say_that_none_leads(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    lonely = other_than(world, leader)
    world.until(world.is_even)
    world.network.cut(leader.name, lonely.name)
    world.network.cut(lonely.name, leader.name)
    world.until(lambda: not member_of(lonely).links.can_talk(leader.name))
    schedule.run_for(5)
    assert world.is_led_by(leader)
    stopped, degraded = faults_at(lonely)
    assert stopped.severity == STOPPED
    assert stopped.fault.startswith(f"node {lonely.name} knows no leader: 2 of 3 voters are")
    assert "run `leveret ctl cluster status` at the other nodes" in stopped.advice
    assert degraded.fault == f"node {leader.name} is not reached"
    assert "remove" not in degraded.advice


def test_a_refused_node_is_told_the_reason_and_not_to_be_rescued(
    schedule: CheckedSchedule,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    refused = other_than(world, leader)
    world.until(world.is_even)
    refused.kill()
    right, refused.secret = refused.secret, b"another secret of it"
    refused.start()
    schedule.run_for(20)
    stopped, *others = faults_at(refused)
    assert stopped.severity == STOPPED
    assert "rescue" not in stopped.advice
    names = sorted(name for name in world.machines if name != refused.name)
    assert ", ".join(names) in stopped.advice
    assert [fault.fault for fault in others] == [f"node {name} refuses this node" for name in names]
    (fault,) = faults_at(leader)
    assert fault.fault == f"node {refused.name} refuses this node"
    assert "have different secrets" in fault.advice

    refused.kill()  # what it said holds no more
    schedule.run_for(60)
    (fault,) = faults_at(leader)
    assert fault.fault == f"node {refused.name} is not reached"
    refused.secret = right
    refused.start()
    world.until(lambda: faults_at(leader) == [])


def test_a_leader_tells_which_node_it_refuses(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    wiped = other_than(world, leader)
    wiped.kill()
    wiped.wipe()
    wiped.start()
    schedule.run_for(10)
    (fault,) = faults_at(leader)
    assert fault.node == wiped.name
    assert "with another data directory than it has now" in fault.fault
    assert f"leveret ctl cluster remove {wiped.name}" in fault.advice
    world.command(leader.name, partial(ClusterMember.remove, name=wiped.name))
    world.until_voters("a", "b", "c")
    world.until(lambda: faults_at(leader) == [])


def test_a_leader_says_why_it_leads_no_more(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    caplog.set_level(logging.INFO)
    target = other_than(world, leader)

    def said(text: str) -> Callable[[], bool]:
        return lambda: f"this node leads no more: {text}" in caplog.text

    world.until(world.is_even)
    world.command(leader.name, partial(ClusterMember.lead, name=target.name))
    world.until(said("it has handed the lead over"))
    world.until(lambda: world.is_led_by(target))
    world.load()
    target.hang_until_s = schedule.now_s + 10
    world.until(said("a sync of its log has not ended within the election timeout"))
    world.until(lambda: world.leader() not in (None, target))
    leader = world.leader() or leader
    for name in world.machines:
        if name != leader.name:
            world.network.cut(name, leader.name)
    world.until(said("no majority of the nodes has answered within the election timeout"))
    world.calm()
