"""Limits and corner cases of a member that traces do not show."""

import pytest

from leveret.cluster.errors import BusyError, ChangeRefusedError, NotLeaderError
from leveret.cluster.raft.block import NORMAL, Block
from leveret.cluster.raft.members import Member
from leveret.cluster.raft.messages import (
    APPEND,
    APPEND_REPLY,
    COMMIT,
    GRANTED,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
)
from leveret.cluster.raft.progress import COPY, REPLICATE
from leveret.cluster.raft.rng import Rng
from leveret.cluster.raft.state import CANDIDATE, FOLLOWER, LEADER
from leveret.cluster.raft.stored import HardState, Stored
from tests.unit.cluster.trio import Host, Trio, founders, fresh

APPEND_HEAD = 13  # what a block takes beside its data


def test_limits_stop_at_the_count_of_messages_and_go_on_after_a_reply() -> None:
    trio = Trio(inflight_count_max=2, append_count_max=1)
    trio.deaf = {2, 3}
    trio.sent.clear()
    for _ in range(5):
        trio.leader.append(b"x")
    trio.run()
    assert [message.blocks[0].index for message in trio.of(APPEND, 2)] == [2, 3]
    trio.deaf.clear()
    trio.tick(4)
    assert trio.raft(2).log.last_index == 6


def test_limits_stop_at_the_bytes_in_flight() -> None:
    trio = Trio(inflight_bytes_max=250, append_bytes_max=100, append_count_max=1)
    trio.deaf = {2, 3}
    trio.sent.clear()
    for _ in range(5):
        trio.leader.append(bytes(100))
    trio.run()
    assert len(trio.of(APPEND, 2)) == 3


def test_message_stops_at_its_bytes_and_carries_one_block_at_least() -> None:
    trio = Trio(append_bytes_max=100)
    trio.sent.clear()
    for size in (60, 60, 500):
        trio.leader.append(bytes(size))
    trio.run()
    assert [len(m.blocks) for m in trio.of(APPEND, 2) if m.blocks] == [1, 1, 1]
    assert trio.raft(2).log.synced_index == 4


def test_commit_reaches_followers_with_the_next_block_or_the_next_tick() -> None:
    trio = Trio()
    trio.tick()
    trio.sent.clear()
    trio.leader.append(b"one")
    trio.run()
    assert trio.leader.raft.commit == 2
    assert not trio.of(COMMIT)
    trio.leader.append(b"two")
    trio.run()
    assert [trio.raft(node).commit for node in (1, 2, 3)] == [3, 2, 2]
    trio.tick()
    assert [trio.raft(node).commit for node in (1, 2, 3)] == [3, 3, 3]
    trio.sent.clear()
    trio.tick()
    assert not trio.of(COMMIT)


def test_blocks_of_one_turn_share_a_message() -> None:
    trio = Trio()
    trio.sent.clear()
    for _ in range(3):
        trio.leader.append(b"x")
    trio.run()
    assert [len(m.blocks) for m in trio.of(APPEND, 2)] == [3]


def test_blocks_leave_before_the_leader_has_synced_them_and_commit_without_its_sync() -> None:
    trio = Trio()
    trio.hosts[1].is_syncing = False
    trio.leader.append(b"x")
    trio.run()
    assert trio.raft(1).log.synced_index == 1
    assert trio.raft(1).commit == 2  # by the other two
    trio.deaf = {3}
    trio.leader.append(b"y")
    trio.run()
    assert trio.raft(1).commit == 2  # one of three has it on disk
    trio.leader.sync()
    assert trio.raft(1).commit == 3


def test_leader_is_full_while_too_much_is_not_committed() -> None:
    trio = Trio(uncommitted_bytes_max=1000)
    trio.deaf = {2, 3}
    assert not trio.leader.raft.is_full()
    trio.leader.append(bytes(2000))
    assert trio.leader.raft.is_full()
    trio.deaf.clear()
    trio.tick(4)
    assert trio.leader.raft.uncommitted_bytes == 0
    assert not trio.leader.raft.is_full()


def test_leader_is_full_while_its_disk_hangs_though_the_others_commit() -> None:
    trio = Trio(uncommitted_bytes_max=1000, window_bytes_max=1000)
    trio.hosts[1].is_syncing = False
    trio.leader.append(bytes(3000))
    trio.run()
    assert trio.raft(1).commit == 2
    assert trio.leader.raft.is_full()


def test_blocks_that_all_followers_have_leave_the_memory_at_once() -> None:
    trio = Trio()
    for _ in range(10):
        trio.leader.append(bytes(100))
        trio.run()
    assert trio.leader.raft.log.window_bytes == 0
    assert trio.raft(2).log.window_bytes == 0


def test_window_keeps_blocks_for_a_lagging_follower_within_its_limit() -> None:
    trio = Trio(window_bytes_max=500)
    trio.deaf = {3}
    for _ in range(20):
        trio.leader.append(bytes(100 - APPEND_HEAD))
        trio.run()
    assert trio.leader.raft.log.window_bytes == 500


def test_follower_before_the_window_is_fed_from_files_one_read_at_a_time() -> None:
    trio = Trio(window_bytes_max=0, append_bytes_max=300)
    trio.deaf = {3}
    for number in range(20):
        trio.leader.append(str(number).encode() + bytes(90))
        trio.run()
    trio.deaf.clear()
    trio.leader.is_reading = False
    trio.tick(4)
    requests = list(trio.leader.reads)
    assert [(request.node, request.first) for request in requests] == [(3, 2)]
    trio.leader.is_reading = True
    trio.tick(2)
    assert trio.hosts[3].blocks.keys() == trio.hosts[1].blocks.keys()
    assert all(
        block.data == trio.hosts[1].blocks[at].data for at, block in trio.hosts[3].blocks.items()
    )


def test_follower_whose_blocks_are_gone_gets_one_copy_and_goes_on_behind_it() -> None:
    trio = Trio(window_bytes_max=0)
    trio.deaf = {3}
    for _ in range(20):
        trio.leader.append(b"x")
        trio.run()
    leader = trio.leader.raft
    leader.forget(15)
    trio.deaf.clear()
    trio.tick(8)
    assert trio.leader.copies == [3]
    assert leader.progress[3].state == COPY
    copy = Stored(trio.raft(3).hard)
    copy.base_index, copy.last_index, copy.commit = 15, 18, 18
    copy.terms, copy.members = [(1, 0)], [(0, founders(1, 2, 3))]
    assert trio.raft(3).may_install(18, 1)
    trio.hosts[3] = Host(3, copy)
    leader.on_copied(3, 18)
    trio.tick(4)
    assert leader.progress[3].state == REPLICATE
    assert trio.raft(3).commit == 21


def test_copy_that_failed_is_asked_for_again_after_a_while() -> None:
    trio = Trio(window_bytes_max=0)
    trio.deaf = {3}
    for _ in range(5):
        trio.leader.append(b"x")
        trio.run()
    trio.leader.raft.forget(4)
    trio.deaf.clear()
    trio.tick(4)
    trio.leader.raft.on_copy_failed(3)
    trio.tick(4)
    assert trio.leader.copies == [3]
    trio.tick(10)
    assert trio.leader.copies == [3, 3]


def test_copy_is_not_taken_by_a_member_that_has_its_last_block() -> None:
    trio = Trio()
    trio.leader.append(b"x")
    trio.run()
    member = trio.raft(2)
    member.commit = 1  # it does not know yet
    assert not member.may_install(2, 1)
    assert member.may_install(2, 9)  # another block: what it has there was never committed
    assert member.may_install(3, 1)
    assert not member.may_install(1, 1)


def test_follower_names_the_leader_when_it_refuses() -> None:
    trio = Trio()
    with pytest.raises(NotLeaderError) as refusal:
        trio.raft(2).append(Block(2, 1, NORMAL, b""))
    assert refusal.value.leader == 1


def test_vote_is_refused_while_a_leader_is_heard() -> None:
    trio = Trio()
    message = Message(VOTE, 3, 2, 9)
    message.index, message.log_term = 9, 9
    trio.raft(2).step(message)
    assert trio.raft(2).term == 1
    message.context = 1  # the leader itself has chosen the candidate
    trio.raft(2).step(message)
    assert (trio.raft(2).term, trio.raft(2).vote) == (9, 3)


def test_one_ready_is_under_way_and_the_next_gathers_the_rest() -> None:
    host = Host(2, fresh(founders(1, 2, 3)))
    raft = host.raft
    for index in (1, 2, 3):
        raft.step(block_of_leader(index))
    first = raft.ready()
    assert first is not None
    assert [block.index for block in first.blocks] == [1, 2, 3]
    for index in (4, 5):
        raft.step(block_of_leader(index))
    assert raft.ready() is None
    assert raft.take_messages() == []  # nothing is synced
    raft.advance(first)
    assert [(m.kind, m.index) for m in raft.take_messages()] == [(APPEND_REPLY, 3)]
    assert host.write()
    assert [(m.kind, m.index) for m in raft.take_messages()] == [(APPEND_REPLY, 5)]


def block_of_leader(index: int) -> Message:
    message = Message(APPEND, 1, 2, 1)
    message.index, message.log_term = index - 1, min(index - 1, 1)
    message.blocks = [Block(index, 1, NORMAL, b"x")]
    return message


def test_replies_of_a_hung_disk_do_not_pile_up() -> None:
    raft = Host(2, fresh(founders(1, 2, 3))).raft
    raft.step(block_of_leader(1))
    assert raft.ready() is not None
    for _ in range(100):
        raft.step(block_of_leader(1))
        raft.step(block_of_leader(2))
    assert len(raft.waiting) == 1


def test_follower_with_a_late_disk_takes_no_more_blocks_than_its_limit() -> None:
    raft = Host(2, fresh(founders(1, 2, 3)), follower_bytes_max=100).raft
    for index in range(1, 50):
        raft.step(block_of_leader(index))
    assert raft.log.window_bytes < 100 + 14


def test_blocks_of_an_ended_term_count_when_they_are_synced() -> None:
    # The host writes them by itself. The member must not acknowledge them before.
    trio = Trio()
    host = trio.hosts[1]
    host.is_syncing = False
    host.append(b"x")
    trio.run()
    trio.deaf = {1}
    trio.tick(25)
    trio.deaf.clear()
    trio.tick(5)
    assert host.raft.role == FOLLOWER
    assert host.raft.log.synced_index == host.raft.log.last_index  # by the next `Ready`


def test_leader_of_an_older_term_learns_of_the_newer_one() -> None:
    trio = Trio()
    trio.raft(3).become_follower(5, 0)
    trio.tick(3)
    assert trio.raft(1).role == FOLLOWER
    assert trio.raft(1).term >= 5


def test_single_member_leads_after_its_vote_is_synced() -> None:
    host = Host(1, fresh(founders(1)))
    host.raft.tick()  # there is nobody to wait for
    assert host.raft.role == CANDIDATE
    host.work()
    assert host.raft.role == LEADER
    host.append(b"x")
    assert host.raft.commit == 1
    host.work()
    assert host.raft.commit == 2


def test_leader_that_hears_nobody_steps_down_within_an_election_timeout() -> None:
    trio = Trio()
    leader = trio.leader.raft
    trio.deaf = {2, 3}
    trio.tick(leader.config.election_ticks)
    assert leader.role == FOLLOWER


def test_leader_and_followers_stay_while_large_messages_are_on_their_way() -> None:
    """No message of the leader arrives: they wait behind one that takes long."""
    trio = Trio()
    leader = trio.leader.raft
    trio.leader.append(bytes(1000))
    trio.deaf = {2, 3}
    trio.run()
    trio.sent.clear()
    for _ in range(5 * leader.config.election_ticks):
        for node in trio.deaf:
            trio.raft(node).on_receiving()
        trio.tick()
    assert (leader.role, leader.term) == (LEADER, 1)
    assert [trio.raft(node).leader for node in (2, 3)] == [1, 1]
    assert not [message for message in trio.of(APPEND) if message.blocks]  # nothing is sent twice
    trio.tick(4 * leader.config.election_ticks)
    assert leader.role != LEADER


def test_killed_leader_is_replaced_in_a_few_ticks() -> None:
    for seed in range(50):
        trio = Trio()
        old = trio.hosts.pop(1)
        for host in trio.hosts.values():
            host.raft.rng = Rng(seed * 7 + host.raft.node)
            host.raft.on_link_lost(1)
        ticks = 0
        while not any(host.raft.role == LEADER for host in trio.hosts.values()):
            trio.tick()
            ticks += 1
        assert ticks <= old.raft.config.link_lost_ticks
        assert trio.leader.raft.term == 2  # no vote was split


def test_voter_with_a_living_link_refuses_the_pre_vote_of_one_that_lost_it() -> None:
    trio = Trio()
    trio.raft(3).on_link_lost(1)
    trio.sent.clear()
    for _ in range(3):
        trio.raft(3).tick()
    trio.run()
    assert trio.of(PRE_VOTE)
    assert all(reply.context != GRANTED for reply in trio.of(PRE_VOTE_REPLY))
    trio.tick(4)
    assert trio.raft(1).role == LEADER
    assert trio.raft(3).leader == 1


def test_heartbeats_do_not_leave_while_the_disk_hangs_and_then_another_leads() -> None:
    trio = Trio()
    leader = trio.leader.raft
    trio.sent.clear()
    for ticks in range(2, leader.config.election_ticks + 1):
        assert leader.role == LEADER
        leader.tick(ticks)
        trio.run()
    assert not trio.of(HEARTBEAT)
    assert leader.role == FOLLOWER
    assert len(trio.of(TIMEOUT_NOW)) == 1
    assert trio.leader.raft is not leader


def test_hand_over_waits_for_the_successor_and_gives_up_in_time() -> None:
    trio = Trio()
    leader = trio.leader.raft
    trio.deaf = {2}
    trio.leader.append(b"x")
    trio.run()
    assert leader.best_successor() == 3
    leader.transfer(2)
    assert not leader.may_append()
    with pytest.raises(BusyError, match="about to lead"):
        trio.leader.append(b"y")
    trio.sent.clear()
    for _ in range(leader.config.election_ticks):
        leader.tick()
        trio.run()
    assert not trio.of(TIMEOUT_NOW)
    assert leader.may_append()
    assert leader.counters.transfers_failed == 1
    leader.transfer(3)
    trio.run()
    assert trio.raft(3).role == LEADER


def damaged(losses: int = 1, **fields: int) -> Stored:
    """A member of the trio whose log was lost, with all that it had acknowledged."""
    stored = fresh(founders(1, 2, 3))
    stored.hard = HardState(1)
    for _ in range(losses):
        stored.hard.note_loss(fields.get("promised", stored.hard.promised_index))
    return stored


def test_member_that_lost_blocks_votes_again_when_it_has_them() -> None:
    trio = Trio()
    for _ in range(5):
        trio.leader.append(b"x")
    trio.run()
    assert trio.leader.raft.progress[3].match == 6
    trio.hosts[3] = Host(3, damaged())
    raft = trio.raft(3)
    request = Message(VOTE, 2, 3, 9)
    request.index, request.log_term, request.context = 99, 9, 1
    trio.sent.clear()
    raft.step(request)
    trio.turn()
    assert [reply.context for reply in trio.of(VOTE_REPLY)] == [0]
    assert not raft.may_lead()
    trio.tick(60)  # a new leader of a later term
    assert raft.hard.may_vote
    assert raft.log.last_index == trio.leader.raft.log.last_index


def test_old_promises_of_a_member_that_lost_blocks_do_not_count() -> None:
    trio = Trio()
    trio.deaf = {2}
    trio.leader.append(b"x")
    trio.hosts[1].is_syncing = False
    trio.run()
    leader = trio.leader.raft
    assert leader.progress[3].match == 2
    assert leader.commit == 1
    trio.hosts[3] = Host(3, damaged())
    trio.deaf = {2, 3}  # it is heard, and gets nothing
    alive = Message(HEARTBEAT_REPLY, 3, 1, 1)
    alive.context = 1
    leader.step(alive)
    assert leader.progress[3].match == 0
    trio.leader.sync()
    assert leader.commit == 1
    late = Message(APPEND_REPLY, 3, 1, 1)  # from before the loss
    late.index = 2
    leader.step(late)
    assert leader.commit == 1


def test_heartbeat_from_before_the_loss_promises_nothing() -> None:
    raft = Host(3, damaged(losses=2)).raft
    beat = Message(HEARTBEAT, 1, 3, 1)
    beat.index = 0
    for losses in (0, 1):
        beat.context = losses
        raft.step(beat)
        assert not raft.hard.may_vote
    beat.context = 2
    raft.step(beat)
    assert raft.hard.may_vote


def test_changes_are_refused_with_a_reason() -> None:
    trio = Trio()
    leader = trio.leader.raft
    with pytest.raises(ChangeRefusedError, match="node 2 is a member already"):
        leader.plan_add(Member(2))
    with pytest.raises(ChangeRefusedError, match="node 4 is not a member"):
        leader.plan_remove(4)
    with pytest.raises(ChangeRefusedError, match="node 2 is not a non-voter"):
        leader.plan_promote(2)
    with pytest.raises(NotLeaderError):
        trio.raft(2).plan_add(Member(4))
    trio.deaf = {2, 3}
    trio.leader.change(leader.plan_add(Member(4)))
    with pytest.raises(BusyError, match="another change"):
        leader.plan_remove(3)


def test_removal_that_would_cost_the_majority_is_refused() -> None:
    trio = Trio()
    leader = trio.leader.raft
    del trio.hosts[3]
    trio.tick(leader.config.election_ticks + 1)
    reason = "without node 2, 1 of 2 voters would be reached, and 2 are needed"
    with pytest.raises(ChangeRefusedError, match=reason):
        leader.plan_remove(2)
    trio.leader.change(leader.plan_remove(3))
    trio.run()
    assert leader.commit == 2


def test_two_changes_in_one_block_are_not_appended() -> None:
    trio = Trio()
    with pytest.raises(AssertionError):
        trio.leader.change(founders(1, 4, 5))


def test_status_tells_where_followers_are() -> None:
    trio = Trio()
    trio.deaf = {3}
    trio.leader.append(b"x")
    trio.tick(3)
    status = trio.leader.raft.status()
    assert (status.role, status.term, status.commit, status.last) == (LEADER, 1, 2, 2)
    followers = {follower.node: follower for follower in status.followers}
    assert followers[2].match == 2
    assert followers[3].match == 1
    assert followers[3].heard_ticks > followers[2].heard_ticks


def test_member_with_an_older_directory_notices_its_loss_and_gets_the_blocks_again() -> None:
    trio = Trio()
    trio.leader.append(b"x")
    trio.tick()
    member = trio.raft(2)
    older = Stored(member.hard.copy())
    older.last_index, older.commit = member.log.last_index, member.commit
    older.terms, older.members = member.log.terms.rows(), [(0, founders(1, 2, 3))]
    blocks = dict(trio.hosts[2].blocks)
    for _ in range(3):
        trio.leader.append(b"y")
        trio.run()
    trio.hosts[2] = Host(2, older)
    trio.hosts[2].blocks = blocks
    trio.leader.raft.on_link_lost(2)
    heartbeat_ticks = trio.raft(1).config.heartbeat_ticks
    trio.tick(heartbeat_ticks)
    member = trio.raft(2)
    assert (member.hard.losses, member.hard.may_vote) == (1, False)
    trio.tick(4 * heartbeat_ticks)
    assert member.log.last_index == trio.leader.raft.log.last_index
    assert member.hard.may_vote
    assert trio.leader.raft.progress[2].state == REPLICATE


def test_loss_is_told_when_it_is_synced() -> None:
    trio = Trio()
    member = trio.raft(2)
    message = Message(HEARTBEAT, 1, 2, member.term)
    message.commit = member.log.last_index + 1
    member.step(message)
    assert member.take_messages() == []
    trio.hosts[2].write()
    (reply,) = member.take_messages()
    assert (reply.kind, reply.context) == (HEARTBEAT_REPLY, 1)
