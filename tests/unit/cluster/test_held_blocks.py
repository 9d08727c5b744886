"""Blocks that a leader holds back from a follower that no commit needs."""

import pytest

from leveret.cluster.raft.messages import APPEND
from leveret.cluster.raft.state import LEADER
from tests.unit.cluster.trio import Trio


def holding(**limits: int) -> Trio:
    """Return three members that have the same log. Blocks go to member 2 first."""
    trio = Trio(**{"held_count_max": 8, **limits})
    trio.tick(4)
    trio.sent.clear()
    return trio


def sizes(trio: Trio, node: int) -> list[int]:
    """Return how many blocks each message to a node carried."""
    return [len(message.blocks) for message in trio.of(APPEND, node)]


def append(trio: Trio, *blocks: bytes) -> None:
    """Append blocks one after the other; each leaves before the next one is made."""
    for data in blocks:
        trio.leader.append(data)
        trio.run()


def test_follower_that_no_commit_needs_gets_several_blocks_at_once() -> None:
    trio = holding()
    append(trio, b"x", b"y", b"z")
    assert trio.leader.raft.commit == trio.leader.raft.log.last_index
    assert (sizes(trio, 2), sizes(trio, 3)) == ([1, 1, 1], [])
    assert trio.leader.raft.has_held
    trio.leader.raft.send_held()
    trio.run()
    assert sizes(trio, 3) == [3]
    assert trio.raft(3).log.synced_index == trio.leader.raft.log.last_index
    assert not trio.leader.raft.has_held


def test_held_blocks_are_sent_at_the_next_tick_at_the_latest() -> None:
    trio = holding()
    append(trio, b"x")
    assert sizes(trio, 3) == []
    trio.tick()
    assert sizes(trio, 3)[:1] == [1]


def test_held_blocks_commit_without_the_follower_that_hangs() -> None:
    trio = holding()
    trio.deaf = {2}
    append(trio, b"x")
    assert trio.leader.raft.commit < trio.leader.raft.log.last_index
    trio.leader.raft.send_held()
    trio.run()
    assert trio.leader.raft.commit == trio.leader.raft.log.last_index
    append(trio, b"y")  # member 3 is ahead now, and waits no more
    assert trio.leader.raft.commit == trio.leader.raft.log.last_index
    assert sizes(trio, 3) == [1, 1]


def test_held_blocks_leave_when_the_other_follower_is_lost() -> None:
    trio = holding()
    trio.deaf = {2}
    append(trio, b"x")
    assert sizes(trio, 3) == []
    trio.leader.raft.on_link_lost(2)
    trio.run()
    assert sizes(trio, 3) == [1]
    assert trio.leader.raft.commit == trio.leader.raft.log.last_index


def test_many_or_large_blocks_are_not_held_back() -> None:
    trio = holding(held_count_max=3)
    append(trio, b"x", b"y", b"z")
    assert sizes(trio, 3) == [3]
    trio = holding(held_bytes_max=100)
    append(trio, b"x", bytes(100))
    assert sizes(trio, 3) == [2]


@pytest.mark.parametrize("target", [2, 3])
def test_nothing_is_held_back_during_a_hand_over(target: int) -> None:
    trio = holding()
    append(trio, b"x")
    assert sizes(trio, 3) == []
    leader = trio.leader
    leader.raft.transfer(target)
    leader_sent = leader.work()
    assert [len(m.blocks) for m in leader_sent if m.kind == APPEND and m.target == 3] == [1]
    for message in leader_sent:
        trio.raft(message.target).step(message)
    trio.run()
    assert trio.raft(target).role == LEADER


def test_nothing_is_held_back_if_both_followers_are_needed() -> None:
    trio = holding()
    trio.hosts[1].change(trio.leader.raft.plan_remove(2))
    trio.run()
    trio.sent.clear()
    append(trio, b"x")
    assert trio.leader.raft.commit == trio.leader.raft.log.last_index
    assert sizes(trio, 3) == [1]
