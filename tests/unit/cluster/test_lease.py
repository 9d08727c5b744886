"""The lease of a leader: while it has one, no other node can lead."""

from typing import Any

import pytest

from leveret.cluster.host import TICK_S, RaftHost
from leveret.cluster.raft.block import NORMAL
from leveret.cluster.raft.config import ELECTION_TICKS
from leveret.cluster.raft.messages import Message
from tests.unit.cluster.trio import Trio

LEADER = 1
FOLLOWERS = (2, 3)


class Quiet:
    """Takes every call and returns None, as compiled callers demand."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class Leading:
    """The host of a leader whose followers answer at once, and the time of its machine."""

    def __init__(self) -> None:
        self.trio = Trio()
        self.now_s = 0.0
        self.kept: list[Message] = []  # old answers of the followers
        self._sent: list[Message] = []
        quiet: Any = Quiet()
        owner: Any = Quiet()
        owner.send = lambda target, messages: self._sent.extend(messages)
        self.host = RaftHost(self.trio.raft(LEADER), quiet, owner, lambda: self.now_s, quiet.later)
        self.host.tick()  # it reports that it leads
        self.host.lead_with(quiet)
        assert not self.host.has_lease(), "it may be deposed already"
        self.commit()

    def commit(self) -> None:
        """Append a block, and deliver all messages."""
        index = int(self.host.raft.log.last_index) + 1
        self.host.append(index, NORMAL, b"block")
        self.host.on_written(index)
        self.deliver()

    def deliver(self) -> None:
        while self._sent:
            message = self._sent.pop(0)
            if message.target in self.trio.deaf:
                continue
            follower = self.trio.hosts[int(message.target)]
            follower.raft.step(message)
            answers = follower.work()
            self.kept = answers or self.kept
            self.host.on_messages(answers)

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.now_s += TICK_S
            self.host.tick()
            self.deliver()


def test_a_leader_that_hears_its_followers_has_a_lease() -> None:
    leading = Leading()
    for _ in range(3 * ELECTION_TICKS):
        assert leading.host.has_lease()
        leading.tick(1)


@pytest.mark.parametrize(("deaf", "has_lease"), [({2}, True), ({2, 3}, False)])
def test_the_lease_ends_before_others_can_elect_a_leader(deaf: set[int], has_lease: bool) -> None:
    leading = Leading()
    leading.trio.deaf = deaf
    leading.tick(ELECTION_TICKS // 2 + 1)
    assert leading.host.is_leading
    assert leading.host.has_lease() is has_lease
    leading.trio.deaf = set()
    leading.tick(3)
    assert leading.host.has_lease() is has_lease, "it was lost: hearing somebody is not enough"
    leading.commit()
    assert leading.host.has_lease()


def test_a_leader_that_has_stepped_down_has_no_lease() -> None:
    leading = Leading()
    assert leading.host.has_lease()
    leading.host.follow(int(leading.host.raft.term) + 1, 2)
    assert not leading.host.is_leading
    assert not leading.host.has_lease()


@pytest.mark.parametrize("is_tick_first", [False, True])
def test_a_leader_that_was_stopped_for_a_while_has_no_lease(is_tick_first: bool) -> None:
    leading = Leading()
    leading.tick(ELECTION_TICKS)
    leading.trio.deaf = set(FOLLOWERS)  # they have another leader now
    leading.now_s += ELECTION_TICKS * TICK_S
    if is_tick_first:
        leading.host.tick()
    leading.host.on_messages(leading.kept)  # they were sent before
    assert not leading.host.has_lease()
    leading.tick(3)
    leading.host.on_messages(leading.kept)
    assert not leading.host.has_lease()


def test_a_leader_without_open_links_to_a_majority_has_no_lease() -> None:
    """Followers whose links were closed elect a leader sooner than those that hear nothing."""
    leading = Leading()
    leading.tick(ELECTION_TICKS)
    leading.host.on_link_lost(2)
    leading.tick(4)
    assert leading.host.has_lease(), "it is heard again"
    leading.trio.deaf = set(FOLLOWERS)
    for number in FOLLOWERS:
        assert leading.host.has_lease()
        leading.host.on_link_lost(number)
    assert not leading.host.has_lease(), "they may elect a leader before the next tick"
    leading.tick(3)
    assert not leading.host.has_lease()


def test_a_commit_from_before_the_links_were_lost_gives_no_lease() -> None:
    leading = Leading()
    leading.now_s += ELECTION_TICKS * TICK_S
    assert not leading.host.has_lease()
    leading.tick(4)
    leading.commit()
    for number in FOLLOWERS:
        leading.host.on_link_lost(number)
    assert not leading.host.has_lease()


def test_followers_that_were_not_asked_while_a_disk_hung_give_no_lease() -> None:
    """Their silence does not depose the leader, but they may be about to elect another one."""
    leading = Leading()
    leading.now_s += ELECTION_TICKS * TICK_S
    assert not leading.host.has_lease()
    index = int(leading.host.raft.log.last_index) + 1
    leading.host.append(index, NORMAL, b"block")
    leading.deliver()
    leading.tick(ELECTION_TICKS - 2)  # without heartbeats
    leading.trio.deaf = set(FOLLOWERS)
    leading.host.on_written(index)
    assert leading.host.committed == index
    leading.tick(1)
    assert leading.host.is_leading
    assert not leading.host.has_lease()


def test_a_leader_that_hands_its_lead_over_has_no_lease() -> None:
    """The next leader is elected at once, and may serve clients before this one hears of it."""
    leading = Leading()
    leading.tick(ELECTION_TICKS)
    assert leading.host.has_lease()
    leading.trio.deaf = {2}
    leading.host.transfer(2)
    assert not leading.host.has_lease()
    leading.tick(ELECTION_TICKS)
    assert leading.host.may_append, "the hand-over was given up"
    assert not leading.host.has_lease()
    leading.commit()
    assert leading.host.has_lease()
