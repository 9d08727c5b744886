"""Nodes on one loop, with real links and real files: turns, answers, and ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from leveret.cluster import node as node_module
from leveret.cluster.commands import encode_enqueue
from leveret.cluster.hello import Identity
from leveret.cluster.host import Host
from leveret.cluster.links import Address, Links
from leveret.cluster.machine import CONFIRM, Machine
from leveret.cluster.node import ClusterNode
from leveret.cluster.raft.entry import COMMAND, Entry, Members
from leveret.cluster.raft.messages import APPEND, SNAPSHOT, Message
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import Block
from leveret.cluster.store.files import Files
from leveret.cluster.store.store import Store
from leveret.cluster.turn import Outcome
from leveret.errors import Closed, NotLeader, PreconditionFailed, ProtocolError, StorageError
from leveret.storage.disk import Disk

HOST = "127.0.0.1"
SECRET = b"a secret for tests"
TICK_S = 0.05
WAIT_S = 20.0
GROUP = 1


class BadFiles(Files):
    """A disk whose syncs fail from some moment on."""

    is_broken = False

    def write(self, block: Block) -> None:
        if self.is_broken:
            raise StorageError("the disk does not answer")
        super().write(block)


class Seat:
    """One node, and what it has told its owner."""

    def __init__(self, number: int, folder: Path, voters: list[int]) -> None:
        self.number = number
        disk = Disk(folder / str(number))
        disk.prepare()
        self.disk = disk
        self.files = BadFiles(disk)
        store = Store.open(self.files, number)
        self.host = Host(number, 1, number)
        members = Members(voters, [])
        if not store.has(GROUP):
            store.create(GROUP, members)
            self.host.add_group(GROUP, Stored(members), Machine())
        else:
            self.host.add_group(GROUP, store.stored(GROUP), Machine())
        me = Identity(number, "test", SECRET, 1)
        self.links = Links(me, self._on_messages, chance=Random(number))
        self.node = ClusterNode(self.host, store, self.links, self._on_outcomes, tick_s=TICK_S)
        self.outcomes: list[Outcome] = []
        self.news = asyncio.Event()

    def _on_messages(self, messages: list[Message], size_bytes: int) -> None:
        self.node.on_messages(messages, size_bytes)

    def _on_outcomes(self, outcomes: list[Outcome]) -> None:
        self.outcomes += outcomes
        self.news.set()

    @property
    def is_leader(self) -> bool:
        return self.host.groups[GROUP].raft.role == LEADER

    def confirmed(self) -> list[int]:
        return [
            effect.number
            for outcome in self.outcomes
            for effect in outcome.effects
            if effect.kind == CONFIRM
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def publish(self, *seqs: int) -> None:
        self.node.propose(GROUP, [encode_enqueue(1, 7, seq, 0, b"body") for seq in seqs])


@asynccontextmanager
async def seats(folder: Path, count: int) -> AsyncIterator[list[Seat]]:
    numbers = list(range(1, count + 1))
    found = [Seat(number, folder, numbers) for number in numbers]
    for seat in found:
        await seat.links.start(HOST, 0)
    for seat in found:
        for other in found:
            seat.links.add_peer(other.number, Address(HOST, other.links.port))
        seat.node.start()
    try:
        yield found
    finally:
        for seat in found:
            await seat.node.stop()
            seat.files.close()
            seat.disk.release()


async def leader_of(found: list[Seat]) -> Seat:
    async with asyncio.timeout(WAIT_S):
        while True:
            for seat in found:
                if seat.is_leader and seat.outcomes:
                    return seat
            await asyncio.sleep(TICK_S)


async def read(seat: Seat) -> None:
    """Asked again while the node has not heard who leads."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await seat.node.read(GROUP, WAIT_S)
            except NotLeader:
                await asyncio.sleep(TICK_S)


def played(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """A test that awaits."""

    @functools.wraps(test)
    def play(*arguments: object, **named: object) -> None:
        asyncio.run(test(*arguments, **named))

    return play


@played
async def test_what_is_proposed_is_applied_everywhere_and_told_by_the_leader(
    tmp_path: Path,
) -> None:
    async with seats(tmp_path, 3) as found:
        leader = await leader_of(found)
        leader.publish(1, 2)
        leader.publish(3)
        await leader.until(lambda: leader.confirmed() == [1, 2, 3])
        await read(leader)
        follower = next(seat for seat in found if seat is not leader)
        await read(follower)
        assert len(follower.host.groups[GROUP].machine.contents.messages) == 3
        assert follower.confirmed() == []
        with pytest.raises(NotLeader) as refused:
            follower.publish(4)
        assert refused.value.leader == leader.number


@played
async def test_proposals_of_one_round_of_the_loop_share_one_sync(tmp_path: Path) -> None:
    async with seats(tmp_path, 1) as (seat,):
        await leader_of([seat])
        before = seat.node.syncs
        for seq in range(1, 101):
            seat.publish(seq)
        await seat.until(lambda: len(seat.confirmed()) == 100)
        assert seat.node.syncs - before <= 2


@played
async def test_a_node_starts_again_with_what_it_has_confirmed(tmp_path: Path) -> None:
    async with seats(tmp_path, 1) as (seat,):
        await leader_of([seat])
        seat.publish(1, 2, 3)
        await seat.until(lambda: seat.confirmed() == [1, 2, 3])
    assert not seat.node.store.flush()  # the log was brought to a good end
    async with seats(tmp_path, 1) as (again,):
        await leader_of([again])
        await read(again)
        assert len(again.host.groups[GROUP].machine.contents.messages) == 3


@played
async def test_a_sync_that_fails_ends_the_node_and_nobody_hears_of_the_turn(
    tmp_path: Path,
) -> None:
    async with seats(tmp_path, 3) as found:
        leader = await leader_of(found)
        leader.files.is_broken = True
        sent = leader.links.facts()
        leader.publish(1)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(StorageError, match="does not answer"):
                await leader.node.ended
        assert leader.confirmed() == []
        assert leader.links.facts() == []
        assert sent
        with pytest.raises(Closed):
            leader.publish(2)
        rest = [seat for seat in found if seat is not leader]
        logs = [seat.host.groups[GROUP].raft.log for seat in rest]
        assert all(entry.kind != COMMAND for found_log in logs for entry in found_log.entries)
        second = await leader_of(rest)
        second.publish(1)
        await second.until(lambda: second.confirmed() == [1])


@played
async def test_an_assertion_of_a_member_ends_the_node(tmp_path: Path) -> None:
    async with seats(tmp_path, 1) as (seat,):
        await leader_of([seat])
        lie = Message(APPEND, 2, 1, GROUP, seat.host.groups[GROUP].raft.term)
        seat.node.on_messages([lie], 100)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(AssertionError, match="two leaders"):
                await seat.node.ended


@played
async def test_a_snapshot_that_cannot_be_read_is_the_fault_of_the_peer(tmp_path: Path) -> None:
    async with seats(tmp_path, 3) as found:
        leader = await leader_of(found)
        seat = next(seat for seat in found if seat is not leader)
        chunk = Message(SNAPSHOT, leader.number, seat.number, GROUP, 90)
        chunk.index, chunk.log_term, chunk.commit, chunk.data = 1000, 90, 3, b"abc"
        with pytest.raises(ProtocolError):
            seat.node.on_messages([chunk], 100)
        assert not seat.node.ended.done()


@played
async def test_reads_end_with_the_node(tmp_path: Path) -> None:
    async with seats(tmp_path, 3) as found:
        leader = await leader_of(found)
        await asyncio.gather(*(seat.node.stop() for seat in found if seat is not leader))
        async with asyncio.TaskGroup() as group:
            read = group.create_task(ended_read(leader))
            await asyncio.sleep(0)
            await leader.node.stop()
        assert read.result()


async def ended_read(seat: Seat) -> bool:
    try:
        await seat.node.read(GROUP, WAIT_S)
    except (Closed, NotLeader):
        return True
    return False


@played
async def test_a_node_that_is_behind_reads_no_more_until_its_disk_is_done(
    tmp_path: Path,
) -> None:
    async with seats(tmp_path, 3) as found:
        leader = await leader_of(found)
        seat = next(seat for seat in found if seat is not leader)
        full = Message(APPEND, leader.number, seat.number, GROUP + 1, 1)
        full.entries = [Entry(1, 1, COMMAND, b"")]
        seat.node.on_messages([full], node_module.RECEIVED_BYTES_MAX)
        before = seat.links.is_paused
        seat.node.on_messages([full], 1)
        full_up = seat.links.is_paused
        await read(seat)
        assert (before, full_up, seat.links.is_paused) == (False, True, False)


@played
async def test_a_group_comes_and_goes_and_a_restart_knows_which_are_there(tmp_path: Path) -> None:
    async with seats(tmp_path, 1) as (seat,):
        await leader_of([seat])
        for group in (5, 6):
            seat.node.add_group(group, Members([1], []), Machine())
        await seat.until(lambda: all(seat.host.groups[g].raft.role == LEADER for g in (5, 6)))
        seat.node.remove_group(5)
        seat.node.propose(6, [encode_enqueue(1, 7, 1, 0, b"body")])
        await seat.until(lambda: seat.confirmed() == [1])
    store = Store.open(Files(Disk(tmp_path / "1")), 1)
    assert sorted(store.groups()) == [GROUP, 6]
    assert len(store.stored(6).entries) == 2


@played
async def test_a_command_that_no_frame_could_carry_is_refused(tmp_path: Path) -> None:
    async with seats(tmp_path, 1) as (seat,):
        await leader_of([seat])
        with pytest.raises(PreconditionFailed):
            seat.node.propose(GROUP, [bytes(node_module.COMMAND_BYTES_MAX + 1)])
        seat.publish(1)
        await seat.until(lambda: seat.confirmed() == [1])
