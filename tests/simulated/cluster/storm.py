"""One run of a whole cluster under faults: real nodes, AMQP clients, and one seed for everything.

A run forms a cluster, publishes to a queue and to a stream, consumes, and lets one fault after the
other happen. Then all faults end, and everything must become well within a time limit. The rules:

    told        a client is told of a message only if the disks of a majority have it
    lost        every confirmed message is delivered
    invented    no message is delivered that nobody sent
    again       a message whose ack was committed by a transaction is not delivered again
    order       the messages of one connection are first delivered in their order
    offsets     an offset of the stream is the same message for ever
    blocks      a committed block is the same on all nodes for ever, and times never fall
    leaders     a term has at most one leader
    faults      no task of a node fails, and no member breaks an invariant of Raft
    balance     at the end the queue is empty, and the logs of all nodes are the same

A broken rule raises AssertionError with the seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Final
from unittest.mock import patch

from leveret.auth import hashes
from leveret.checksum import crc32
from leveret.cluster.errors import ClusterError, FalseMessageError
from leveret.cluster.member import ClusterMember
from leveret.cluster.raft.messages import Message
from leveret.storage.block_reader import BlockReader
from leveret.storage.block_records import stamped_ms
from tests.simulated.clients import (
    KEY_BYTES,
    QUEUE,
    STREAM,
    Accounts,
    Client,
    Consumer,
    Publisher,
    StreamReader,
)
from tests.simulated.cluster.broker_node import SimulatedBroker
from tests.simulated.loop import NodeLoop
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

MESSAGES: Final = 60  # of each publisher
FEW_CONFIRMED: Final = 2  # in half of the runs the log waits for the answer to so many confirms
CALM_S: Final = 240.0  # after all faults have ended, everything is well within this time
DRAINS_MAX: Final = 10  # of the queue at the end; a transaction may be stopped before its commit
_BLOCKS_BYTES: Final = 1 << 30  # read all blocks at once
_SEARCHED_BYTES_MAX: Final = 1 << 22  # larger files are the reserves of disks
# A member that ends by itself says one of these.
_ALLOWED_ENDS: Final = (
    "the log cannot be written",
    "was removed",
    "this node cannot lead: [Errno",
    "cannot start: [Errno",
    "a copy of the leader's directory cannot be used: [Errno",
)


class BlockRecord:
    """A committed block."""

    def __init__(self, data: bytes) -> None:
        self.crc = crc32(data)
        self.now_ms = int(stamped_ms(data, 0, len(data)))


class Storm:
    """A cluster, its clients, and everything that has happened."""

    def __init__(self, seed: int, count: int = 0) -> None:
        """Make a cluster of `count` nodes; 0: the seed decides."""
        self.schedule = Schedule(seed)
        quick_hashes = patch.object(hashes, "_COST_LOG2", 1)  # they take most of a run otherwise
        quick_hashes.start()
        self.schedule.at_end.append(quick_hashes.stop)
        strict = patch.object(ClusterMember, "on_messages", self._strict(ClusterMember.on_messages))
        strict.start()
        self.schedule.at_end.append(strict.stop)
        self.rng = self.schedule.rng
        shape = Random(seed)  # what kind of run this is
        self.network = Network(self.schedule)
        count = shape.choice((3, 3, 3, 5)) if count == 0 else count
        self.names = [chr(ord("a") + number) for number in range(count)]
        file_bytes = shape.choice((1 << 26, 20_000, 4_000))
        self.machines = [SimulatedBroker(self.network, name, self.names) for name in self.names]
        self.set_file_bytes(file_bytes)
        for machine in self.machines:
            machine.on_lead = self._on_lead
            machine.on_commit = self._on_commit
            machine.on_ended = self._on_ended
            if shape.random() < 0.5:
                machine.clock.skew_ms = shape.randrange(-100_000, 100_000)
        if shape.random() < 0.5:
            for machine in self.machines:
                machine.confirmed_min = FEW_CONFIRMED
        self.accounts = Accounts()
        self.accounts.faults = self.schedule.faults
        self.accounts.on_told = self._on_told
        self.publishers: list[Publisher] = []
        self.readers: list[Client] = []
        self.happened: list[str] = []  # faults, with their times
        self.leaders: dict[int, str] = {}  # by term
        self.blocks: dict[int, BlockRecord] = {}
        self._checked: dict[NodeLoop, int] = {}  # the last block that was compared, by process
        self._last_file: dict[str, int] = {}  # of each node: where the last message was found
        self.wiped: SimulatedBroker | None = None  # is being replaced
        self.is_calm = False  # processes that have ended are started again

    def _strict(self, take: Callable[..., None]) -> Callable[..., None]:
        """Let a false message end the run. A node only ends the connection."""

        def strict(
            member: ClusterMember, peer: str, messages: list[Message], size_bytes: int
        ) -> None:
            try:
                take(member, peer, messages, size_bytes)
            except FalseMessageError as fault:
                self.schedule.faults.append(f"a message of node {peer}: {fault}")
                raise

        return strict

    # The cluster

    def set_file_bytes(self, size: int) -> None:
        """Set the size at which a log file is full, on all nodes."""
        for machine in self.machines:
            machine.file_bytes = size

    def form(self) -> None:
        for machine in self.machines:
            machine.start()
        self.until("the cluster is formed", self.is_even)

    def leader(self) -> SimulatedBroker | None:
        """Return the node that serves clients; of two, the one with the later term."""
        serving = [machine for machine in self.machines if machine.is_serving()]
        return max(serving, key=_term, default=None)

    def is_even(self) -> bool:
        """Return True if all nodes are voters and have all blocks of their leader, committed."""
        leader = self.leader()
        if leader is None or leader.node is None:
            return False
        last, term = leader.node.member.next_index - 1, _term(leader)
        for machine in self.machines:
            if machine.member is None or machine.member.host is None:
                return False
            if machine.member.host.committed != last or _term(machine) != term:
                return False
        voters = [m for m in leader.node.member.status().members if m.role != "non-voter"]
        return len(voters) == len(self.machines)

    def until(self, what: str, is_so: Callable[[], bool], within_s: float = CALM_S) -> None:
        """Run until something is so."""
        end_s = self.schedule.now_s + within_s
        while not is_so():
            assert self.schedule.now_s < end_s, self.report(f"not within {within_s} s: {what}")
            self._step()

    def run_for(self, time_s: float) -> None:
        end_s = self.schedule.now_s + time_s
        while self.schedule.now_s < end_s:
            self._step()

    def _step(self) -> None:
        if self.is_calm:
            self._start_all()
        try:
            self.schedule.step()
        except AssertionError as fault:
            raise AssertionError(self.report(str(fault))) from fault

    def report(self, fault: str) -> str:
        """Return a fault with what happened before."""
        lines = [f"seed {self.schedule.seed} at {self.schedule.now_s:.3f} s: {fault}"]
        return "\n".join(lines + self.happened)

    def note(self, text: str) -> None:
        self.happened.append(f"  {self.schedule.now_s:8.3f} {text}")

    # Clients

    def begin_clients(self, choose_url: Callable[[], str] | None = None) -> None:
        """Start the clients. Each connection goes to another node, unless a node is given."""
        choose_url = choose_url or self._any_url
        network, accounts = self.network, self.accounts
        self.publishers = [
            Publisher(network, "p0", choose_url, accounts, MESSAGES),
            Publisher(network, "p1", choose_url, accounts, MESSAGES),
            Publisher(network, "p2", choose_url, accounts, MESSAGES, STREAM),
        ]
        self.readers = [
            Consumer(network, "c0", choose_url, accounts),
            StreamReader(network, "c1", choose_url, accounts, STREAM),
        ]

    def _any_url(self) -> str:
        return self.rng.choice(self.machines).url()

    def _start_all(self) -> None:
        """Start the processes that do not run. The operator starts a wiped node."""
        for machine in self.machines:
            if machine.loop is None and machine is not self.wiped:
                machine.start()

    def calm(self) -> None:
        """End all faults, and wait until all is well again."""
        self.note("calm")
        self.is_calm = True
        for machine in self.machines:
            heal_disk(machine)
        self.network.heal()
        self.until("the wiped node is replaced", lambda: self.wiped is None)
        self.until("all is published", lambda: all(p.task.done() for p in self.publishers))
        self.until("all is delivered", lambda: not self.accounts.lost())
        self.until("all nodes are even", self.is_even)

    def check_end(self) -> None:
        """Check the balance: nothing is left, and nothing differs."""
        assert not self.accounts.invented(), self.report(f"invented {self.accounts.invented()}")
        self.until("all is acked", lambda: self.accounts.confirmed <= self.settled())
        self._stop(self.readers)
        self._drain()
        self.until("all nodes are even", self.is_even)
        for machine in self.machines:
            self._compare(machine, 1)

    def _stop(self, clients: list[Client]) -> None:
        for client in clients:
            client.stop()
        self.until("the readers have ended", lambda: all(c.task.done() for c in clients))

    def _drain(self) -> None:
        """Empty the queue: publishers have given up connections whose messages came later."""
        drains = 0
        while left := self._count():
            drains += 1
            assert drains <= DRAINS_MAX, self.report(f"{left} messages are left")
            goal = self.accounts.delivered.total() + left
            late = Consumer(self.network, "c9", self._any_url, self.accounts)
            self.until("the rest is delivered", self._has_delivered(goal))
            self._stop([late])

    def _has_delivered(self, count: int) -> Callable[[], bool]:
        return lambda: self.accounts.delivered.total() >= count

    def _count(self) -> int:
        """Return how many messages are in the queue."""
        last = Publisher(self.network, "p9", self._any_url, self.accounts, 0, QUEUE)
        self.until("the queue is counted", last.task.done)
        return last.ready

    def settled(self) -> set[bytes]:
        """Return the messages that were acked, or read from the stream."""
        return self.accounts.acked | set(self.accounts.offsets.values())

    # Rules

    def _on_lead(self, machine: SimulatedBroker, term: int) -> None:
        other = self.leaders.setdefault(term, machine.name)
        self.note(f"{machine.name} leads, term {term}")
        if other != machine.name:
            self.schedule.faults.append(f"{other} and {machine.name} lead in term {term}")

    def _on_ended(self, machine: SimulatedBroker, reason: str) -> None:
        self.note(f"{machine.name} has ended: {reason}")
        if not any(allowed in reason for allowed in _ALLOWED_ENDS):
            self.schedule.faults.append(f"{machine.name} has ended: {reason}")
        loop = machine.loop

        def end() -> None:
            if loop is not None and machine.loop is loop:
                machine.kill()

        self.schedule.after(0.1, end)

    def _on_commit(self, machine: SimulatedBroker, index: int) -> None:
        loop = machine.loop
        assert loop is not None
        self._compare(machine, self._checked.get(loop, index - 1) + 1, index)
        self._checked[loop] = index

    def _compare(self, machine: SimulatedBroker, first: int, last: int = 0) -> None:
        """Compare committed blocks on a disk with those of the other nodes."""
        if last == 0:
            assert machine.node is not None
            assert machine.node.member.host is not None
            last = machine.node.member.host.committed
            first = int(machine.node.member.host.raft.log.base_index) + 1
        assert machine.loop is not None
        found = BlockReader(machine.disk, machine.loop).read_now(first, last, _BLOCKS_BYTES)
        for index, (_, _, data) in enumerate(found, start=first):
            record = BlockRecord(data)
            known = self.blocks.setdefault(index, record)
            before = self.blocks.get(index - 1, record)
            if known.crc != record.crc:
                self.schedule.faults.append(f"{machine.name} has another block {index}")
            if before.now_ms > known.now_ms:
                self.schedule.faults.append(f"the time of block {index} is before the last one")

    def _on_told(self, body: bytes) -> None:
        """Check that the disks of a majority have a message that a client is told of."""
        if body in self.accounts.acked:
            return  # its files may be gone
        key = body[:KEY_BYTES]
        holders = sum(
            machine.has_been_wiped or self._holds(machine, key) for machine in self.machines
        )
        if holders * 2 <= len(self.machines):
            self.schedule.faults.append(f"{key!r} was told, and {holders} nodes have it")

    def _holds(self, machine: SimulatedBroker, key: bytes) -> bool:
        """Return True if a disk has a message. Most are in the file that had the last one."""
        contents = machine.disk._contents
        if key in contents.get(self._last_file.get(machine.name, -1), b""):
            return True
        for number, content in reversed(contents.items()):
            if len(content) < _SEARCHED_BYTES_MAX and key in content:
                self._last_file[machine.name] = number
                return True
        return False

    # The operator

    def replace_wiped(self, machine: SimulatedBroker) -> None:
        """Wipe a node, remove it from the cluster, and let it join again."""
        self.wiped = machine
        if machine.loop is not None:
            machine.kill()
        machine.wipe()
        self._remove_wiped()

    def _remove_wiped(self) -> None:
        wiped, leader = self.wiped, self.leader()
        assert wiped is not None
        if leader is None or leader.node is None or leader.loop is None:
            self.schedule.after(0.5, self._remove_wiped)
            return
        host = leader.node.member.host
        assert host is not None
        # A removal that is not committed may be taken back, and then the node is refused for ever.
        if host.raft.log.members_at(host.raft.commit).named(wiped.name) is None:
            self.note(f"{wiped.name} is removed, and starts empty")
            self.wiped = None
            wiped.start()
            return
        member = leader.node.member

        async def remove() -> None:
            with contextlib.suppress(ClusterError):
                await member.remove(wiped.name)

        leader.loop.start(remove())
        self.schedule.after(1.0, self._remove_wiped)


def _term(machine: SimulatedBroker) -> int:
    assert machine.member is not None
    return machine.member.term


def heal_disk(machine: SimulatedBroker) -> None:
    machine.disk.hang_s = 0.0
    machine.disk.slowness = 1.0
    machine.disk.capacity_bytes = None
    machine.disk.mend()
