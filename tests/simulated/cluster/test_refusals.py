"""Nodes that must not connect are refused, and both logs have the sentence that says what to do."""

from collections.abc import Callable

import pytest

from tests.simulated.cluster.machine import member_of
from tests.simulated.cluster.world import CheckedSchedule, World, other_than, started


def both_said(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    """Return a check that both sides have a line with this text, as refusing and as refused."""

    def is_so() -> bool:
        found = [record.message for record in caplog.records if text in record.message]
        own = [line for line in found if ": refused: " in line]
        told = [line for line in found if ": it refuses this node: " in line]
        return bool(own and told)

    return is_so


def test_a_wrong_secret_is_refused(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, _ = started(schedule, "a", "b")
    world.add("c", ["a", "b", "c"], secret=b"another secret of it").start()
    text = "have different secrets: give all nodes of the cluster the same --cluster-secret-file"
    world.until(both_said(caplog, text))


def test_a_node_of_another_cluster_is_refused(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, _ = started(schedule, "a", "b")
    other = world.add("c", ["c"])
    other.start()
    world.until(lambda: other.cluster != b"")
    other.kill()
    other.peers = ["a", "b", "c"]
    other.start()
    world.until(both_said(caplog, f"belongs to cluster {other.cluster.hex()}"))
    assert "move its data directory away" in caplog.text
    world.calm_without(other)


def test_a_node_with_data_of_its_own_is_refused(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, _ = started(schedule, "a", "b")
    other = world.add("c", ["a", "b", "c"])
    other.has_data = True
    other.start()
    world.until(both_said(caplog, "node c has data of its own, so it cannot join the cluster"))
    world.calm_without(other)


def test_two_nodes_with_data_of_their_own_do_not_mix(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(schedule, "a", "b")
    for machine in world.machines.values():
        machine.has_data = True
    world.start_all()
    world.until(both_said(caplog, "has data of its own"))
    assert world["a"].cluster != world["b"].cluster


def test_a_wiped_node_under_its_old_name_is_refused_until_it_is_removed(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    wiped = other_than(world, leader)
    wiped.kill()
    wiped.wipe()
    wiped.start()
    world.until(both_said(caplog, f"`leveret ctl cluster remove {wiped.name}`"))
    schedule.run_for(10)
    assert wiped.cluster == b""
    leader = world.leader() or leader
    said = world.command(leader.name, lambda member: member.remove(wiped.name))
    assert said == f"node {wiped.name} was removed from the cluster"
    world.until_voters("a", "b", "c")
    assert wiped.number == 4
    world.calm()


def test_two_nodes_of_one_name_are_refused(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(schedule, "a", "b", "c")
    world["a"].start()
    world["b"].start()
    schedule.run_for(3)
    twin = world.add("twin", ["a", "b", "c"])
    twin.called = "b"
    twin.start()
    world.until(both_said(caplog, "two nodes are called b, at b and at twin"))
    twin.kill()
    del world.machines["twin"]
    world["c"].start()
    world.until_voters("a", "b", "c")


def test_nodes_with_different_lists_of_peers_found_nothing(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(schedule, "a", "b", "c")
    world["c"].peers = ["b", "c"]
    world.start_all()
    world.until(both_said(caplog, "give all new nodes the same --cluster-peers"))
    schedule.run_for(20)
    assert {machine.cluster for machine in world.machines.values()} == {b""}
    world["c"].kill()
    world["c"].peers = ["a", "b", "c"]
    world["c"].start()
    world.until_voters("a", "b", "c")


def test_a_node_of_a_release_that_is_too_old_or_too_new_is_refused(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(schedule, "a", "b")
    for machine in world.machines.values():
        machine.format = 2, 3
    world.start_all()
    world.until_voters("a", "b")
    for name, formats, advice in (
        ("c", (1, 1), "upgrade node c"),
        ("d", (4, 5), "upgrade node a"),
    ):
        other = world.add(name, ["a", "b", name])
        other.format = formats
        other.start()
        world.until(both_said(caplog, advice))
        other.kill()
        del world.machines[name]
    world["b"].kill()
    world["b"].format = 3, 4  # a rolling upgrade: the ranges overlap
    world.calm()


def test_a_wiped_node_is_refused_again_once_it_is_known_what_is_committed(
    schedule: CheckedSchedule, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that follows again does not know which changes of the members are committed."""
    world, leader = started(schedule, "a", "b", "c")
    world.until(world.is_even)
    wiped = other_than(world, leader)
    other = other_than(world, leader, wiped)
    other.kill()
    wiped.kill()
    wiped.wipe()
    world.until(lambda: world.leader() is None)
    wiped.start()
    schedule.run_for(10)
    other.start()
    world.until(lambda: world.leader() is not None)
    caplog.clear()
    world.until(both_said(caplog, f"`leveret ctl cluster remove {wiped.name}`"))
    schedule.run_for(10)
    for machine in (leader, other):
        assert not member_of(machine).links.can_talk(wiped.name)
        assert "data directory" in member_of(machine).status().refusals[wiped.name]
