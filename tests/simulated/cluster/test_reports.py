"""Reports of members to their leader in a simulated world."""

from functools import partial

from leveret.cluster.reports import FRESH_S, REPORT_BYTES_MAX, REPORT_S, Reports
from tests.simulated.cluster.machine import Machine, member_of
from tests.simulated.cluster.world import CheckedSchedule, other_than, started


def _report(machine: Machine) -> None:
    """Let a machine report how often it was asked for a report."""
    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"%s %d" % (machine.name.encode(), len(made) + 1))
        return made[-1]

    member_of(machine).reports.make = make


def _keeps(reports: Reports, expected: dict[str, bytes]) -> bool:
    return all(reports.newest(name) == report for name, report in expected.items())


def test_followers_report_to_their_leader_again_and_again(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    kept = member_of(leader).reports
    followers = [machine for machine in world.machines.values() if machine is not leader]
    for machine in world.machines.values():
        _report(machine)
    for count in (1, 2, 3):
        expected = {m.name: b"%s %d" % (m.name.encode(), count) for m in followers}
        world.until(partial(_keeps, kept, expected))
    assert kept.newest(leader.name) == b""
    assert all(member_of(m).reports.newest(leader.name) == b"" for m in followers)


def test_new_leader_gets_reports_at_once(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    other = other_than(world, leader, follower)
    for machine in world.machines.values():
        _report(machine)
    world.command(leader.name, lambda member: member.lead(follower.name))
    world.until(lambda: world.leader() is follower)
    began_s = schedule.now_s
    new = member_of(follower).reports
    world.until(lambda: bool(new.newest(leader.name) and new.newest(other.name)))
    assert schedule.now_s - began_s < REPORT_S / 2


def test_leader_tells_the_state_of_the_cluster_in_its_answers(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    _report(follower)
    told = partial(member_of(follower).reports.told_state, leader.name)
    for state in ("ok", "degraded", "ok"):
        member_of(leader).reports.find_state = lambda state=state: state  # type: ignore[misc]
        world.until(lambda state=state: told() == state)  # type: ignore[misc]
    assert member_of(follower).reports.told_state(follower.name) == "", "it has told nothing"
    member_of(follower).reports.make = None
    schedule.run_for(FRESH_S + 1)
    assert told() == "", "the leader may have changed its mind"


def test_report_that_is_not_renewed_is_forgotten(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    _report(follower)
    kept = member_of(leader).reports
    world.until(lambda: kept.newest(follower.name) != b"")
    member_of(follower).reports.make = None
    schedule.run_for(FRESH_S - REPORT_S - 1)
    assert kept.newest(follower.name) != b""
    schedule.run_for(REPORT_S + 2)
    assert kept.newest(follower.name) == b""


def test_long_report_is_refused(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    follower = other_than(world, leader)
    member_of(follower).reports.make = lambda: bytes(REPORT_BYTES_MAX + 1)
    schedule.run_for(2 * REPORT_S)
    assert member_of(leader).reports.newest(follower.name) == b""
    assert world.leader() is leader
