"""Limits and corner cases of a member that traces do not show."""

import pytest

from leveret.cluster.errors import (
    BusyError,
    NotLeaderError,
)
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.core import Raft
from leveret.cluster.raft.entry import COMMAND, Entry, Members
from leveret.cluster.raft.messages import (
    APPEND,
    GRANTED,
    HEARTBEAT,
    PRE_VOTE_REPLY,
    SNAPSHOT,
    SNAPSHOT_REPLY,
    VOTE,
    Message,
)
from leveret.cluster.raft.state import FOLLOWER, LEADER
from leveret.cluster.raft.stored import Stored

GROUP = 7


class Trio:
    """Three members with a perfect network, except for nodes that hear nothing."""

    def __init__(self, **limits: int) -> None:
        self.deaf: set[int] = set()
        self.sent: list[Message] = []
        self.rafts: dict[int, Raft] = {}
        for node in (1, 2, 3):
            config = Config(node, GROUP)
            for name, value in limits.items():
                setattr(config, name, value)
            self.rafts[node] = Raft(config, Stored(Members([1, 2, 3], [])), node)
        self.leader = self.rafts[1]
        self.leader.elapsed = self.leader.timeout
        self.leader.tick()
        self.run()
        assert self.leader.role == LEADER

    def run(self) -> None:
        while self.turn():
            pass

    def turn(self) -> bool:
        """Process one `Ready` of each member; return True if there was any."""
        is_busy = False
        for raft in self.rafts.values():
            ready = raft.ready()
            if ready is not None:
                is_busy = True
                self.sent += ready.messages
                for message in ready.messages:
                    if message.target not in self.deaf:
                        self.rafts[message.target].step(message)
                raft.advance(ready)
        return is_busy


def test_window_stops_at_its_count_and_goes_on_after_an_answer() -> None:
    trio = Trio(inflight_count_max=2, append_count_max=1)
    trio.deaf = {2, 3}
    trio.sent.clear()
    for _ in range(5):
        trio.leader.propose([b"x"])
    trio.run()
    entries = [m for m in trio.sent if m.kind == APPEND and m.target == 2]
    assert [message.entries[0].index for message in entries] == [2, 3]
    trio.deaf.clear()
    for _ in range(4):
        trio.leader.tick()
        trio.run()
    assert trio.rafts[2].log.last_index() == 6


def test_window_stops_at_its_bytes() -> None:
    trio = Trio(inflight_bytes_max=250, append_bytes_max=100, append_count_max=1)
    trio.deaf = {2, 3}
    trio.sent.clear()
    for _ in range(5):
        trio.leader.propose([bytes(100)])
    trio.run()
    assert len([m for m in trio.sent if m.kind == APPEND and m.target == 2]) == 3


def test_message_of_entries_stops_at_its_bytes_and_carries_one_at_least() -> None:
    trio = Trio(append_bytes_max=100)
    trio.sent.clear()
    trio.leader.propose([bytes(60), bytes(60), bytes(500)])
    trio.run()
    sizes = [len(m.entries) for m in trio.sent if m.kind == APPEND and m.target == 2 and m.entries]
    assert sizes == [1, 1, 1]
    assert trio.rafts[2].applied == 4


def test_proposals_are_refused_while_too_much_is_not_committed() -> None:
    trio = Trio(uncommitted_bytes_max=1000)
    trio.deaf = {2, 3}
    trio.leader.propose([bytes(2000)])
    with pytest.raises(BusyError):
        trio.leader.propose([b"x"])
    trio.deaf.clear()
    for _ in range(4):
        trio.leader.tick()
        trio.run()
    trio.leader.propose([b"x"])


def test_follower_names_the_leader_when_it_refuses() -> None:
    trio = Trio()
    with pytest.raises(NotLeaderError) as refusal:
        trio.rafts[2].propose([b"x"])
    assert refusal.value.leader == 1


def test_message_of_another_incarnation_of_the_group_is_ignored() -> None:
    trio = Trio()
    message = Message(HEARTBEAT, 3, 2, GROUP + 1, 99)
    trio.rafts[2].step(message)
    assert trio.rafts[2].term == 1
    assert trio.rafts[2].ready() is None


def test_vote_is_refused_while_a_leader_is_heard_of() -> None:
    trio = Trio()
    message = Message(VOTE, 3, 2, GROUP, 9)
    message.index, message.log_term = 9, 9
    trio.rafts[2].step(message)
    assert trio.rafts[2].term == 1
    message.context = 1  # the leader itself has chosen the candidate
    trio.rafts[2].step(message)
    assert (trio.rafts[2].term, trio.rafts[2].vote) == (9, 3)


def test_group_is_quiet_when_everybody_has_everything() -> None:
    trio = Trio()
    assert all(raft.is_quiet() for raft in trio.rafts.values())
    trio.deaf = {3}
    trio.leader.propose([b"x"])
    trio.run()
    assert not trio.leader.is_quiet()


def test_only_one_ready_is_under_way() -> None:
    trio = Trio()
    trio.leader.propose([b"x"])
    ready = trio.leader.ready()
    assert ready is not None
    trio.leader.propose([b"y"])
    assert trio.leader.ready() is None
    trio.leader.advance(ready)
    following = trio.leader.ready()
    assert following is not None
    assert [entry.data for entry in following.entries] == [b"y"]


def test_reads_are_refused_beyond_their_limit() -> None:
    trio = Trio(reads_max=2)
    trio.deaf = {2, 3}
    trio.leader.read(1)
    trio.leader.read(2)
    with pytest.raises(BusyError):
        trio.leader.read(3)


def test_leader_of_an_older_term_learns_of_the_newer_one() -> None:
    trio = Trio()
    trio.rafts[3].become_follower(5, 0)
    for _ in range(3):
        trio.leader.tick()
        trio.run()
    assert trio.leader.role == FOLLOWER
    assert trio.leader.term == 5


def test_what_is_committed_at_once_makes_room_for_as_much() -> None:
    # Entries over the limit that are committed by one reply must not stay counted.
    raft = Raft(Config(1, GROUP), Stored(Members([1], [])), 1)
    raft.config.uncommitted_bytes_max = 1000
    raft.elapsed = raft.timeout
    raft.tick()
    settle(raft)
    for _ in range(5):
        raft.propose([bytes(400)] * 4)
        settle(raft)
        assert raft.commit == raft.log.last_index()
        assert raft.uncommitted_bytes == 0


def settle(raft: Raft) -> None:
    """Do all work of a single member."""
    while (ready := raft.ready()) is not None:
        raft.advance(ready)


def test_new_leader_counts_what_those_before_it_have_left_uncommitted() -> None:
    stored = Stored(Members([1], []))
    stored.entries = [Entry(index, 1, COMMAND, bytes(600)) for index in (1, 2)]
    raft = Raft(Config(1, GROUP), stored, 1)
    raft.config.uncommitted_bytes_max = 1000
    raft.elapsed = raft.timeout
    raft.tick()
    with pytest.raises(BusyError):
        raft.propose([b"x"])
    settle(raft)
    raft.propose([b"x"])


def test_a_follower_that_gets_a_snapshot_under_load_needs_no_second_one() -> None:
    trio = Trio(trailing=0, chunk_bytes=10)
    trio.deaf = {3}
    trio.leader.propose([b"x"] * 10)
    trio.run()
    trio.leader.compact(bytes(100), [])
    trio.run()
    trio.deaf.clear()
    trio.sent.clear()
    for _ in range(200):
        # There is a snapshot after every entry, and a chunk takes longer than an entry.
        trio.leader.propose([b"x"])
        trio.leader.tick()
        trio.turn()
        if trio.leader.log.unsaved is None:
            trio.leader.compact(bytes(100), [])
    indexes = {message.index for message in trio.sent if message.kind == SNAPSHOT}
    assert indexes == {11}
    assert trio.leader.log.last_index() - trio.rafts[3].applied < 10


def test_a_leader_that_wakes_and_hears_nobody_steps_down_within_one_timeout() -> None:
    trio = Trio()
    for raft in trio.rafts.values():
        raft.may_sleep = True
    trio.leader.begin_sleep()
    trio.run()
    assert all(raft.is_asleep for raft in trio.rafts.values())
    trio.deaf = {2, 3}
    trio.leader.wake(0)
    for _ in range(trio.leader.config.election_ticks):
        assert trio.leader.role == LEADER
        trio.leader.tick()
    assert trio.leader.role == FOLLOWER


def test_chunks_of_two_leaders_are_never_mixed() -> None:
    raft = Raft(Config(2, GROUP), Stored(Members([1, 2, 3], [])), 2)
    raft.step(chunk(1, term=1, offset=0))
    raft.elapsed = raft.timeout
    raft.tick()
    granted = Message(PRE_VOTE_REPLY, 3, 2, GROUP, 2)
    granted.context = GRANTED
    raft.step(granted)
    assert (raft.term, raft.vote) == (2, 2)
    settle(raft)
    raft.step(chunk(3, term=2, offset=10))  # node 3 has won the election that this node has lost
    ready = raft.ready()
    assert ready is not None
    assert [(m.kind, m.hint) for m in ready.messages] == [(SNAPSHOT_REPLY, 0)]


def chunk(leader: int, term: int, offset: int) -> Message:
    """Return half of a snapshot of 20 bytes."""
    message = Message(SNAPSHOT, leader, 2, GROUP, term)
    message.index, message.log_term, message.commit, message.hint = 50, 1, 20, offset
    message.data = bytes(10)
    return message
