"""Nodes on one event loop, with real links and real files: turns, answers, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from leveret.cluster import node as node_module
from leveret.cluster import writer as writer_module
from leveret.cluster.commands import encode_enqueue
from leveret.cluster.errors import NotLeaderError
from leveret.cluster.handshake import Identity
from leveret.cluster.host import Host
from leveret.cluster.links import Address, Links
from leveret.cluster.machine import CONFIRM, Machine
from leveret.cluster.node import READS_MAX, ClusterNode
from leveret.cluster.raft.entry import COMMAND, Entry, Members
from leveret.cluster.raft.messages import APPEND, SNAPSHOT, Message
from leveret.cluster.raft.state import LEADER
from leveret.cluster.raft.stored import Stored
from leveret.cluster.store.blocks import Block
from leveret.cluster.store.files import Files
from leveret.cluster.store.store import Store
from leveret.cluster.turn import Outcome
from leveret.errors import (
    ClosedError,
    PreconditionFailedError,
    ProtocolError,
    StorageError,
)
from leveret.storage.disk import Disk
from tests.unit.cluster.played import WAIT_S, played, until

HOST = "127.0.0.1"
SECRET = b"a secret for tests"
TICK_S = 0.05
GROUP = 1


class BadFiles(Files):
    """A disk that hangs for a while, or whose syncs fail from some moment on."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.is_broken = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def write(self, block: Block) -> None:
        assert self.goes_on.wait(WAIT_S)
        if self.is_broken:
            raise StorageError("the disk does not answer")
        super().write(block)


class Seat:
    """One node, and what it has told its owner."""

    def __init__(self, number: int, folder: Path, voters: list[int], incarnation: int = 1) -> None:
        self.number = number
        disk = Disk(folder / str(number))
        disk.prepare()
        self.disk = disk
        self.files = BadFiles(disk)
        store = Store.open(self.files, number)
        self.host = Host(number, incarnation, number)
        members = Members(voters, [])
        if not store.has(GROUP):
            store.create(GROUP, members)
            self.host.add_group(GROUP, Stored(members), Machine())
        else:
            self.host.add_group(GROUP, store.stored(GROUP), Machine())
        me = Identity(number, "test", SECRET, incarnation)
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
    def has_led(self) -> bool:
        """Whether it leads, and its owner was told so."""
        return self.host.groups[GROUP].raft.role == LEADER and bool(self.outcomes)

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
async def seats(folder: Path, count: int, incarnation: int = 1) -> AsyncIterator[list[Seat]]:
    numbers = list(range(1, count + 1))
    found = [Seat(number, folder, numbers, incarnation) for number in numbers]
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
    await until(lambda: any(seat.has_led for seat in found))
    return next(seat for seat in found if seat.has_led)


@asynccontextmanager
async def led(folder: Path) -> AsyncIterator[tuple[Seat, list[Seat]]]:
    """Three seats, when one of them leads: that one, and the others."""
    async with seats(folder, 3) as found:
        leader = await leader_of(found)
        yield leader, [seat for seat in found if seat is not leader]


@asynccontextmanager
async def alone(folder: Path, incarnation: int = 1) -> AsyncIterator[Seat]:
    """One seat, when it leads."""
    async with seats(folder, 1, incarnation) as (seat,):
        yield await leader_of([seat])


async def read(seat: Seat) -> None:
    """Asked again while the node has not heard who leads."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await seat.node.read(GROUP, WAIT_S)
            except NotLeaderError:
                await asyncio.sleep(TICK_S)


@played
async def test_what_is_proposed_is_applied_everywhere_and_told_by_the_leader(
    tmp_path: Path,
) -> None:
    async with led(tmp_path) as (leader, others):
        leader.publish(1, 2)
        leader.publish(3)
        await leader.until(lambda: leader.confirmed() == [1, 2, 3])
        await read(leader)
        follower = others[0]
        await read(follower)
        assert len(follower.host.groups[GROUP].machine.contents.messages) == 3
        assert follower.confirmed() == []
        with pytest.raises(NotLeaderError) as refused:
            follower.publish(4)
        assert refused.value.leader == leader.number


@played
async def test_proposals_of_one_round_of_the_loop_share_one_sync(tmp_path: Path) -> None:
    async with alone(tmp_path) as seat:
        before = seat.node.syncs
        for seq in range(1, 101):
            seat.publish(seq)
        await seat.until(lambda: len(seat.confirmed()) == 100)
        assert seat.node.syncs - before <= 2


@played
async def test_a_node_starts_again_with_what_it_has_confirmed(tmp_path: Path) -> None:
    async with alone(tmp_path) as seat:
        seat.publish(1, 2, 3)
        await seat.until(lambda: seat.confirmed() == [1, 2, 3])
    assert not seat.node.store.flush()  # the log was brought to a good end
    async with alone(tmp_path) as again:
        await read(again)
        assert len(again.host.groups[GROUP].machine.contents.messages) == 3


@played
async def test_a_sync_that_fails_ends_the_node_and_nobody_hears_of_the_turn(
    tmp_path: Path,
) -> None:
    async with led(tmp_path) as (leader, others):
        leader.files.is_broken = True
        sent = leader.links.facts()
        leader.publish(1)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(StorageError, match="does not answer"):
                await leader.node.ended
        assert leader.confirmed() == []
        assert leader.links.facts() == []
        assert sent
        with pytest.raises(ClosedError):
            leader.publish(2)
        logs = [seat.host.groups[GROUP].raft.log for seat in others]
        assert all(entry.kind != COMMAND for found_log in logs for entry in found_log.entries)
        second = await leader_of(others)
        second.publish(1)
        await second.until(lambda: second.confirmed() == [1])


@played
async def test_a_fault_that_the_owner_does_not_ask_for_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with alone(tmp_path) as seat:
        seat.files.is_broken = True
        seat.publish(1)
        await until(seat.node.ended.done)
        await seat.node.stop()
        told = [record for record in caplog.records if "the node ends" in record.message]
        assert len(told) == 1
        seat.node.ended = asyncio.get_running_loop().create_future()
        gc.collect()
    assert "never retrieved" not in caplog.text


@played
async def test_an_assertion_of_a_member_ends_the_node(tmp_path: Path) -> None:
    async with alone(tmp_path) as seat:
        lie = Message(APPEND, 2, 1, GROUP, seat.host.groups[GROUP].raft.term)
        seat.node.on_messages([lie], 100)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(AssertionError, match="two leaders"):
                await seat.node.ended


@played
async def test_a_snapshot_that_cannot_be_read_is_the_fault_of_the_peer(tmp_path: Path) -> None:
    async with led(tmp_path) as (leader, others):
        seat = others[0]
        chunk = Message(SNAPSHOT, leader.number, seat.number, GROUP, 90)
        chunk.index, chunk.log_term, chunk.commit, chunk.data = 1000, 90, 3, b"abc"
        with pytest.raises(ProtocolError):
            seat.node.on_messages([chunk], 100)
        assert not seat.node.ended.done()


@played
async def test_reads_end_with_the_node(tmp_path: Path) -> None:
    async with led(tmp_path) as (leader, others):
        await asyncio.gather(*(seat.node.stop() for seat in others))
        async with asyncio.TaskGroup() as group:
            read = group.create_task(ended_read(leader))
            await asyncio.sleep(0)
            await leader.node.stop()
        assert read.result()


async def ended_read(seat: Seat) -> bool:
    try:
        await seat.node.read(GROUP, WAIT_S)
    except (ClosedError, NotLeaderError):
        return True
    return False


@played
async def test_a_node_that_is_behind_reads_no_more_until_its_disk_is_done(
    tmp_path: Path,
) -> None:
    async with led(tmp_path) as (leader, others):
        seat = others[0]
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
    async with alone(tmp_path) as seat:
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
    async with alone(tmp_path) as seat:
        with pytest.raises(PreconditionFailedError):
            seat.node.propose(GROUP, [bytes(node_module.COMMAND_BYTES_MAX + 1)])
        seat.publish(1)
        await seat.until(lambda: seat.confirmed() == [1])


# The end


@played
async def test_a_disk_that_is_full_keeps_no_node_from_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with alone(tmp_path) as seat:
        seat.publish(1)
        await seat.until(lambda: seat.confirmed() == [1])
        seat.files.is_broken = True  # the end of the log is still to be written
        await seat.node.stop()
        assert seat.node.ended.result() is None
    assert "has no good end: the disk does not answer" in caplog.text
    async with alone(tmp_path) as again:
        await read(again)
        assert len(again.host.groups[GROUP].machine.contents.messages) == 1


@played
async def test_a_write_that_fails_while_its_node_stops_is_told_and_confirms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with alone(tmp_path) as seat:
        seat.files.goes_on.clear()
        seat.publish(1)
        await until(lambda: seat.node._is_writing)
        async with asyncio.TaskGroup() as group:
            group.create_task(seat.node.stop())
            await until(lambda: seat.node._has_stopped)
            seat.files.is_broken = True
            seat.files.goes_on.set()
        assert seat.confirmed() == []
    assert "the last write of a node that stops has failed" in caplog.text
    assert "Traceback" not in caplog.text


@played
async def test_a_disk_that_hangs_keeps_no_node_from_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "JOIN_S", 0.05)
    async with alone(tmp_path) as seat:
        seat.files.goes_on.clear()
        seat.publish(1)
        await until(lambda: seat.node._is_writing)
        await seat.node.stop()
        assert seat.node.ended.result() is None
        assert "the node stops while its disk does not answer" in caplog.text
        seat.files.goes_on.set()
        await until(lambda: not seat.node._is_writing)
        assert seat.confirmed() == []


@played
async def test_nothing_is_left_of_nodes_that_have_stopped(tmp_path: Path) -> None:
    before = open_files()
    async with led(tmp_path) as (leader, _):
        leader.publish(1)
        await leader.until(lambda: leader.confirmed() == [1])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [thread for thread in threading.enumerate() if "raft" in thread.name]
    await until(lambda: open_files() <= before)


def open_files() -> set[str]:
    """What this process has open, but for what a loop makes for itself."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {text for text in found if text.startswith(("/", "socket:"))}


@played
async def test_a_node_that_never_started_stops(tmp_path: Path) -> None:
    seat = Seat(1, tmp_path, [1])
    await seat.node.stop()
    assert seat.node.ended.result() is None
    seat.files.close()
    seat.disk.release()


@played
async def test_no_read_has_the_number_of_one_of_the_process_before(tmp_path: Path) -> None:
    async with alone(tmp_path) as seat:
        await read(seat)
        before = seat.node._next_read
    async with alone(tmp_path, incarnation=2) as again:
        assert again.node._next_read > before + READS_MAX
        await read(again)
