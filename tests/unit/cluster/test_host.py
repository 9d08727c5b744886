"""A host drives many groups: one block for all of them, and only groups with work."""

from collections import Counter
from collections.abc import Callable

import pytest

from leveret.cluster.commands import encode_enqueue
from leveret.cluster.errors import (
    NotLeaderError,
    UnknownGroupError,
)
from leveret.cluster.host import Host
from leveret.cluster.host_config import HostConfig
from leveret.cluster.machine import CONFIRM, Machine
from leveret.cluster.raft.codec import decode_frame, encode_frame
from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.messages import NODE_HEARTBEAT, Message
from leveret.cluster.raft.ready import ReadAnswer
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.turn import Outcome

NODES = (1, 2, 3)


class Nodes:
    """Three hosts with perfect disks and links."""

    def __init__(self, groups: int) -> None:
        self.hosts = {node: Host(node, 1, node) for node in NODES}
        self.outcomes: list[tuple[int, Outcome]] = []
        self.kinds: Counter[int] = Counter()  # counts of messages
        for host in self.hosts.values():
            for group in range(1, groups + 1):
                host.add_group(group, Stored(Members(list(NODES), [])), Machine())

    def settle(self) -> None:
        while any(self._turn(host) for host in self.hosts.values()):
            pass

    def _turn(self, host: Host) -> bool:
        turn = host.turn()
        if turn is None:
            return False
        for lists in (turn.messages, turn.bulk):
            for target, messages in lists.items():
                self.deliver(host.node, target, messages)
        self.outcomes += [(host.node, outcome) for outcome in host.done(turn)]
        return True

    def deliver(self, source: int, target: int, messages: list[Message]) -> None:
        self.kinds.update(int(message.kind) for message in messages)
        if target in self.hosts:
            self.hosts[target].receive(decode_frame(encode_frame(source, target, messages)))

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            for host in self.hosts.values():
                host.tick()
            self.settle()

    def until(self, condition: Callable[[], bool], ticks_max: int = 200) -> None:
        for _ in range(ticks_max):
            if condition():
                return
            self.tick()
        raise AssertionError("it did not happen")

    def leader(self, group: int) -> Host | None:
        for host in self.hosts.values():
            if host.groups[group].raft.role == LEADER:
                return host
        return None

    def lead(self) -> None:
        """Run until every group has a leader that all members know."""
        self.until(
            lambda: all(
                group.raft.leader for host in self.hosts.values() for group in host.groups.values()
            )
        )

    def gather(self, node: int) -> None:
        """Let one node lead every group."""
        for group in self.hosts[node].groups:
            leader = self.leader(group)
            if leader is not None and leader.node != node:
                leader.transfer(group, node)
        self.settle()
        assert all(self.leader(group) is self.hosts[node] for group in self.hosts[node].groups)


def enqueue(seq: int) -> bytes:
    return encode_enqueue(1, 9, seq, 0, b"body")


def test_every_group_has_a_leader_and_takes_commands() -> None:
    nodes = Nodes(5)
    nodes.lead()
    nodes.outcomes = []
    for group in range(1, 6):
        leader = nodes.leader(group)
        assert leader is not None
        leader.propose(group, [enqueue(1), enqueue(2)])
    nodes.settle()
    confirmed = [
        (outcome.group, effect.number)
        for _, outcome in nodes.outcomes
        for effect in outcome.effects
        if effect.kind == CONFIRM
    ]
    assert sorted(confirmed) == [(group, seq) for group in range(1, 6) for seq in (1, 2)]
    for host in nodes.hosts.values():
        assert all(group.machine.ready_count() == 2 for group in host.groups.values())


def test_what_comes_while_a_turn_is_under_way_is_one_block() -> None:
    nodes = Nodes(20)
    nodes.lead()
    nodes.gather(1)
    one = nodes.hosts[1]
    for group in range(1, 21):
        one.propose(group, [enqueue(1)])
    turn = one.turn()
    assert turn is not None
    assert turn.must_sync
    assert len(turn.writes) == 20
    assert [len(messages) for messages in turn.messages.values()] == [20, 20]
    one.propose(1, [enqueue(2)])
    assert one.turn() is None, "one turn at a time"
    one.done(turn)
    following = one.turn()
    assert following is not None
    assert [group for group, _ in following.writes] == [1]


def test_a_turn_is_bounded_and_the_rest_follows() -> None:
    nodes = Nodes(10)
    nodes.lead()
    nodes.gather(1)
    one = nodes.hosts[1]
    one.config.turn_bytes_max = 100
    for group in range(1, 11):
        one.propose(group, [enqueue(1)])
    turn = one.turn()
    assert turn is not None
    assert 0 < len(turn.writes) < 10
    for target, messages in turn.messages.items():
        nodes.deliver(1, target, messages)
    one.done(turn)
    nodes.settle()
    assert all(group.machine.ready_count() == 1 for group in one.groups.values())


def test_a_read_is_answered_when_all_that_it_needs_is_applied() -> None:
    nodes = Nodes(1)
    nodes.lead()
    leader = nodes.leader(1)
    assert leader is not None
    leader.propose(1, [enqueue(1)])
    follower = next(host for host in nodes.hosts.values() if host is not leader)
    follower.read(1, 77)
    nodes.settle()
    answers: list[ReadAnswer] = [a for _, outcome in nodes.outcomes for a in outcome.answers]
    assert [answer.number for answer in answers] == [77]
    assert answers[0].index <= follower.groups[1].raft.applied


def test_changes_of_the_leader_are_told_once() -> None:
    nodes = Nodes(1)
    nodes.lead()
    leader = nodes.leader(1)
    assert leader is not None
    told = [o.leader for node, o in nodes.outcomes if o.is_changed and node == leader.node]
    assert told[-1] == leader.node
    nodes.outcomes = []
    nodes.tick(5)
    assert not [outcome for _, outcome in nodes.outcomes if outcome.is_changed]


def test_requests_to_the_wrong_node_are_refused() -> None:
    nodes = Nodes(1)
    nodes.lead()
    leader = nodes.leader(1)
    assert leader is not None
    follower = next(host for host in nodes.hosts.values() if host is not leader)
    with pytest.raises(NotLeaderError) as refusal:
        follower.propose(1, [enqueue(1)])
    assert refusal.value.leader == leader.node
    with pytest.raises(UnknownGroupError):
        leader.propose(99, [enqueue(1)])


def test_idle_groups_sleep_and_only_nodes_beat() -> None:
    nodes = Nodes(50)
    nodes.lead()
    nodes.until(lambda: all(host.awake_count() == 0 for host in nodes.hosts.values()))
    nodes.kinds.clear()
    nodes.tick(20)
    assert set(nodes.kinds) == {NODE_HEARTBEAT}
    assert nodes.kinds[NODE_HEARTBEAT] == 20 // HostConfig().heartbeat_ticks * len(NODES) * 2
    assert all(host.sleeps == 50 for host in nodes.hosts.values())


def test_only_the_group_that_is_asked_wakes() -> None:
    nodes = Nodes(50)
    nodes.lead()
    nodes.until(lambda: all(host.awake_count() == 0 for host in nodes.hosts.values()))
    leader = nodes.leader(7)
    assert leader is not None
    leader.propose(7, [enqueue(1)])
    nodes.settle()
    assert [host.awake_count() for host in nodes.hosts.values()] == [1, 1, 1]
    assert all(host.groups[7].machine.ready_count() == 1 for host in nodes.hosts.values())


def test_a_lost_node_wakes_its_groups_a_few_at_a_time() -> None:
    nodes = Nodes(60)
    for host in nodes.hosts.values():
        host.config.wakes_max = 10
    nodes.lead()
    nodes.gather(1)
    nodes.until(lambda: all(host.awake_count() == 0 for host in nodes.hosts.values()))
    del nodes.hosts[1]
    woken = []
    awake = 0
    for _ in range(30):
        nodes.tick()
        woken.append(nodes.hosts[2].awake_count() - awake)
        awake = nodes.hosts[2].awake_count()
    assert awake == 60
    # Its own groups, and groups that ask the other node for votes: each kind has its limit.
    assert max(woken) <= 20
    nodes.until(lambda: all(nodes.leader(group) for group in range(1, 61)))


def test_messages_of_a_group_that_is_not_here_are_dropped() -> None:
    nodes = Nodes(1)
    nodes.lead()
    nodes.hosts[1].remove_group(1)
    nodes.tick(30)
    assert 1 not in nodes.hosts[1].groups
    assert any(host.groups[1].raft.role == LEADER for n, host in nodes.hosts.items() if n != 1)
