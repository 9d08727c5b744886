"""One machine of a simulated cluster: a disk in memory, and a process with a `ClusterMember`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.cluster.errors import ClusterError, FalseMessageError
from leveret.cluster.host_owner import Blocks, Done
from leveret.cluster.member import ClusterMember, Directory, NodeSettings
from leveret.cluster.peers import Address
from leveret.cluster.raft.block import MEMBERS, NORMAL, Block
from leveret.cluster.raft.config import Config
from leveret.cluster.raft.members import decode_members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.stored import HardState
from leveret.cluster.relay import RelayHead
from tests.cluster.simulation.disk import Disk, Image
from tests.simulated.loop import NodeLoop, new_loop

if TYPE_CHECKING:
    from tests.simulated.cluster.world import World

PORT: Final = 25672
SECRET: Final = b"a secret of all nodes"
SYNC_S: Final = (0.0005, 0.01)
RECOVERY_S: Final = 0.3
READ_S: Final = 0.01
DAMAGED: Final = b"damaged on its way"


class CheckedMember(ClusterMember):
    """A member whose messages are looked at, with small limits."""

    machine: Machine

    def send(self, target: int, messages: list[Message]) -> None:
        assert self.host is not None
        self.machine.world.check_one(self.machine)
        checker = self.machine.world.checker(self.machine)
        for message in messages:
            checker.on_send(self.host.raft, message, self.host.sync_ticks())
        super().send(target, messages)

    def on_messages(self, peer: str, messages: list[Message], size_bytes: int) -> None:
        try:
            super().on_messages(peer, messages, size_bytes)
        except FalseMessageError as fault:
            if not self.machine.hears_lies:
                self.machine.world.schedule.faults.append(f"{self.machine.name}: {fault}")
            raise

    def make_config(self) -> Config:
        config = super().make_config()
        config.window_bytes_max = 400
        config.append_bytes_max = 500
        config.inflight_bytes_max = 2000
        config.inflight_count_max = 8
        config.uncommitted_bytes_max = 4000
        config.promote_lag_max = 20
        return config


class Machine:
    """One machine."""

    def __init__(
        self, world: World, name: str, peers: list[str], *, secret: bytes = SECRET
    ) -> None:
        self.world = world
        self.rng = world.schedule.rng
        self.name = name
        self.called = name  # --node
        self.peers = peers
        self.secret = secret
        self.has_data = False
        self.format = 1, 1
        self.loop: NodeLoop | None = None  # None: no process runs
        self.member: CheckedMember | None = None
        self.hang_until_s = 0.0
        self.hears_lies = False  # the test sends false messages
        self.ended = ""  # why the member has ended
        self.published = 0
        self.resumed = 0  # hand-overs after which this leader was told to go on
        self._is_leading = False
        self.leaders: list[str] = []  # as it was told
        self.relays: list[RelayHead] = []
        self.wipe()

    def wipe(self) -> None:
        """Lose the disk, and get a new one."""
        assert self.loop is None
        self.disk = Disk()
        self.uid = self.rng.randbytes(16)
        self.cluster = b""
        self.number = 0
        self.has_data = False

    # Processes

    def start(self) -> None:
        assert self.loop is None
        loop = self.loop = new_loop(self.world.schedule, self.name, self.world.network)
        self._is_syncing = False
        self._dones: list[tuple[int, Done]] = []  # with the writes that must be synced
        self._is_leading = False
        self.ended = ""
        loop.run_inside(self._make)
        assert self.member is not None
        loop.start(self.member.start(self.name, PORT))

    def _make(self) -> None:
        settings = NodeSettings(
            name=self.called,
            address=f"{self.name}:{PORT}",
            peers={name: Address(name, PORT) for name in self.peers},
            secret=self.secret,
            format_min=self.format[0],
            format_max=self.format[1],
        )
        directory = Directory(
            uid=self.uid,
            stored=self.disk.durable.stored(),
            cluster=self.cluster,
            number=self.number,
            has_data=self.has_data,
        )
        self.copier = Copier(self)
        self.member = CheckedMember(
            settings, directory, self, self, chance=self.rng, copier=self.copier
        )
        self.member.machine = self

    def kill(self) -> None:
        """Kill the process: what was written stays."""
        self._end(is_silent=False)
        self.disk.sync(self.disk.issued)

    def lose_power(self) -> None:
        self._end(is_silent=True)
        self.disk.crash(self.rng)

    def _end(self, *, is_silent: bool) -> None:
        assert self.loop is not None
        self.world.network.kill(self.loop, is_silent=is_silent)
        self.loop = None
        self.member = None

    def after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Do something in this process, if it still runs then."""
        loop = self.loop
        assert loop is not None

        def run() -> None:
            if self.loop is loop:
                loop.run_inside(callback)

        self.world.schedule.after(delay_s, run)

    # The disk

    def _sync_later(self, done: Done) -> None:
        self._dones.append((self.disk.issued, done))
        self._begin_sync()

    def _begin_sync(self) -> None:
        if not self._is_syncing and self._dones:
            self._is_syncing = True
            issued = self.disk.issued
            self.after(self.rng.uniform(*SYNC_S), lambda: self._sync(issued))

    def _sync(self, issued: int) -> None:
        now_s = self.world.schedule.now_s
        if self.hang_until_s > now_s:
            self.after(self.hang_until_s - now_s, lambda: self._sync(issued))
            return
        self._is_syncing = False
        self.disk.sync(issued)
        due = [done for up_to, done in self._dones if up_to <= issued]
        self._dones = [(up_to, done) for up_to, done in self._dones if up_to > issued]
        for done in due:
            done()
        if self.member is not None and self.member.host is not None:
            self.world.checker(self).on_synced(self.member.host.raft)
        self._begin_sync()

    def write_block(self, block: Block) -> None:
        self.disk.write(block)
        self.world.checker(self).on_block(self.disk.written, block)

    # The log, in both roles

    def commit_to(self, index: int) -> None:
        assert index <= self.disk.durable.last

    def read_blocks(self, first: int, last: int, bytes_max: int, done: Blocks) -> None:
        def read() -> None:
            blocks: list[Block] = []
            size = 0
            for index in range(first, last + 1):
                block = self.disk.durable.block(index)
                if block is None:
                    break
                size += int(block.size_bytes())
                if blocks and size > bytes_max:
                    break
                blocks.append(block)
            done(blocks)

        self.after(self.rng.uniform(0, READ_S), read)

    def make_block(self, index: int, term: int, kind: int, payload: bytes) -> bytes:
        return b"%d %d %d " % (index, term, kind) + payload

    def write(self, hard: HardState | None, cut_from: int, blocks: list[Block], done: Done) -> None:
        assert not self._is_leading
        assert self.member is not None
        assert self.member.host is not None
        if hard is not None:
            self.disk.write(hard)
        if cut_from:
            self.world.checker(self).on_cut(self.member.host.raft, cut_from)
            self.disk.write(cut_from)
        for block in blocks:
            self.write_block(block)
        self._sync_later(done)

    def block_fault(self, block: Block) -> str:
        return "a damaged block" if block.data == DAMAGED else ""

    def write_identity(self, cluster: bytes, number: int, members: bytes, done: Done) -> None:
        def written() -> None:
            self.cluster, self.number = cluster, number
            found = decode_members(members)
            if found.everyone() == [number]:
                self.disk.durable.base_members = self.disk.written.base_members = 0, found
            done()

        self.after(self.rng.uniform(*SYNC_S), written)

    def resume(self) -> None:
        """Count it: each publish asks again whether a block may be made."""
        assert self.member is not None
        assert self.member.may_append
        self.resumed += 1

    def append_members(self, members: bytes) -> None:
        self.after(self.rng.uniform(0, 0.001), lambda: self._append(MEMBERS, members))

    def publish(self, data: bytes) -> None:
        """Let the leader's log make a block, if there is a leader's log."""
        host = None if self.member is None else self.member.host
        if self._is_leading and host is not None and not host.is_full():
            assert self.loop is not None
            self.loop.run_inside(lambda: self._append(NORMAL, data))

    def _append(self, kind: int, data: bytes) -> None:
        member = self.member
        assert member is not None
        index = member.next_index
        try:
            member.append(index, kind, data)
        except ClusterError:
            return
        if member.host is None or member.host.has_ended:
            return
        found = decode_members(data) if kind == MEMBERS else None
        self.write_block(Block(index, member.term, kind, data, found))
        self._sync_later(lambda: member.on_written(index))
        if kind == NORMAL:
            self.published += 1

    # The owner

    def on_lead(self, term: int) -> None:
        assert self.member is not None
        self.leaders.append(self.name)
        self._is_leading = True
        member = self.member
        self.after(self.rng.uniform(0, RECOVERY_S), lambda: member.lead_with(self))

    def on_follow(self, leader: str) -> None:
        self.leaders.append(leader)
        if self._is_leading:
            self._is_leading = False
            member = self.member
            assert member is not None
            # All that was begun is finished, then the directory is opened again.
            self._sync_later(lambda: member.begin_again(self.disk.durable.stored(), self))

    def on_commit(self, index: int) -> None:
        if self._is_leading:
            self.world.on_confirmed(self, index)

    def on_end(self, reason: str) -> None:
        self.ended = reason
        if "has failed" in reason:
            self.world.schedule.faults.append(f"{self.name}: {reason}")

    def takes_relays(self) -> bool:
        return self._is_leading

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        self.relays.append(head)
        transport.close()

    def has_ended(self) -> bool:
        return self.ended != ""

    def forget(self) -> None:
        """Remove log files, as the leader or as a follower."""
        member = self.member
        if member is None or member.host is None or self.copier.is_busy or member.host.has_ended:
            return
        base = min(int(member.host.raft.safe_index()), self.disk.durable.last)
        if base > self.disk.durable.base and not self.disk.pending:
            self.disk.forget(base)
            assert self.loop is not None
            self.loop.run_inside(lambda: member.forget(base))


class Copier:
    """Copies a whole disk, named by a number, over the links."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._dones: dict[str, Callable[[int], None]] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._dones)

    def copy_to(self, peer: str, done: Callable[[int], None]) -> None:
        machine = self._machine
        assert machine.member is not None
        assert machine.member.host is not None
        image = machine.disk.durable.copy()
        committed = int(machine.member.host.raft.safe_index())
        if committed < image.last:
            image.cut(committed + 1)
        images = machine.world.images
        images.append(image)
        self._dones[peer] = done
        if not machine.member.links.send_data(peer, b"copy %d" % (len(images) - 1)):
            self.on_lost(peer)

    def on_data(self, peer: str, data: bytes) -> None:
        word, number = data.split()
        if word == b"done":
            done = self._dones.pop(peer, None)
            if done is not None:
                done(int(number))
            return
        member = self._machine.member
        assert member is not None
        last = self._install(self._machine.world.images[int(number)].copy())
        member.links.send_data(peer, b"done %d" % last)

    def _install(self, image: Image) -> int:
        """Replace the disk; return the last block, or 0 if that was not possible."""
        machine = self._machine
        member = machine.member
        assert member is not None
        term = image.blocks[-1].term if image.blocks else image.base_term
        # A real log ends its writes first. Here a copy that comes meanwhile is refused.
        if machine.disk.pending or machine._dones or not member.may_install(image.last, term):
            return 0
        assert member.host is not None
        image.hard = member.host.raft.hard.copy()
        machine.disk.install(image)
        stored = machine.disk.durable.stored(image.last)
        member.install(stored, machine)
        machine.world.copies += 1
        return image.last

    def on_writable(self, peer: str) -> None:
        pass

    def on_lost(self, peer: str) -> None:
        done = self._dones.pop(peer, None)
        if done is not None:
            done(0)


def member_of(machine: Machine) -> ClusterMember:
    """Return the member of a machine on which a process runs."""
    assert machine.member is not None
    return machine.member
