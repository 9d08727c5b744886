"""One machine of a simulated cluster: the real `ClusterNode` with broker, log, Raft and links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.cluster.member import ClusterMember, NodeSettings
from leveret.cluster.peers import Address
from leveret.errors import LeveretError
from leveret.listening import Client, Networks
from leveret.runtime.cluster_node import ClusterNode
from leveret.runtime.node import Node
from leveret.runtime.public_listeners import PublicListeners
from leveret.storage.answer_wait import CONFIRMED_MIN
from leveret.storage.log import FILE_BYTES
from leveret.storage.replication import Replication
from tests.simulated.disk import SimulatedDisk
from tests.simulated.network import Network
from tests.simulated.node import AMQP_PORT, Machine, Stoppable, settle_at_end

CLUSTER_PORT: Final = 25_672
RESERVE_BYTES: Final = 1 << 18  # few: each start of a node writes them all to memory
SECRET: Final = b"a secret of a simulated cluster"


class _ClusterNode(ClusterNode):
    """A node whose broker speaks AMQP only, and which tells the world about its member."""

    machine: SimulatedBroker

    async def start(self, host: str, port: int) -> None:
        await super().start(host, port)
        self.member.reports.make = None  # a run depends on nothing but its seed

    def make_node(self, replication: Replication) -> Node:
        node = Node(
            self.settings,
            self._clock,
            serves_http=False,
            listens=False,
            disk=self._disk,
            replication=replication,
        )
        node.log_file_bytes = self.machine.file_bytes
        node.reserve_bytes = RESERVE_BYTES
        settle_at_end(self.machine.schedule, node)
        return node

    def _lead(self) -> None:
        super()._lead()
        assert self.node is not None
        self.node.replicated_log().answers.confirmed_min = self.machine.confirmed_min

    def on_lead(self, term: int) -> None:
        self.machine.on_lead(self.machine, term)
        super().on_lead(term)

    def on_commit(self, index: int) -> None:
        self.machine.on_commit(self.machine, index)
        super().on_commit(index)


class SimulatedBroker(Machine):
    """A machine that runs a node of a cluster."""

    def __init__(self, network: Network, name: str, names: list[str]) -> None:
        super().__init__(network, name)
        self.node: ClusterNode | None = None
        self.names = names  # --cluster-peers
        self.wrong_hosts: dict[str, str] = {}  # in that list, by name
        self.file_bytes = FILE_BYTES
        self.confirmed_min = CONFIRMED_MIN  # messages whose answer the log waits for
        self.has_been_wiped = False
        # Called when the member leads, has committed, or has ended.
        self.on_lead: Callable[[SimulatedBroker, int], None] = _ignore
        self.on_commit: Callable[[SimulatedBroker, int], None] = _ignore
        self.on_ended: Callable[[SimulatedBroker, str], None] = _fail

    def process(self) -> Stoppable:
        assert self.node is not None
        return self.node

    def start(self) -> None:
        """Start a process on the disk."""
        loop = self.begin()
        hosts = {name: self.wrong_hosts.get(name, name) for name in self.names}
        peers = {name: Address(host, CLUSTER_PORT) for name, host in hosts.items()}
        cluster = NodeSettings(
            name=self.name, address=f"{self.name}:{CLUSTER_PORT}", peers=peers, secret=SECRET
        )
        chance = Random(self.schedule.rng.getrandbits(62))
        node = loop.run_inside(
            lambda: _ClusterNode(self.settings(), cluster, self.clock, self.disk, chance=chance)
        )
        node.machine = self
        self.node = node
        listeners = PublicListeners(
            node.find_server, node.relays, 0, Networks(""), relay_fault=node.relay_fault
        )

        def accept() -> asyncio.BaseProtocol:
            client = Client("10.0.0.1", 0, is_local=False)
            assert listeners.enter(client.host, -1)
            return listeners.make_protocol("amqp", client)

        self.network.listen(loop, accept, self.name, AMQP_PORT)
        loop.start(self._start(node))
        node.ended.add_done_callback(lambda ended: self.on_ended(self, ended.result()))

    async def _start(self, node: ClusterNode) -> None:
        try:
            await node.start(self.name, CLUSTER_PORT)
        except (OSError, LeveretError) as fault:
            node.ended.set_result(f"cannot start: {fault}")

    @property
    def member(self) -> ClusterMember | None:
        """The member of the node; None if it has not begun."""
        return getattr(self.node, "member", None)

    def is_serving(self) -> bool:
        """Return True if this node leads and serves clients."""
        return self.node is not None and self.node.is_serving

    def wipe(self) -> None:
        """Lose the disk, and get a new one."""
        assert self.loop is None
        self.disk = SimulatedDisk()
        self.has_been_wiped = True

    def end(self, *, is_silent: bool) -> None:
        super().end(is_silent=is_silent)
        self.node = None


def start_nodes(network: Network, names: list[str]) -> list[SimulatedBroker]:
    """Start nodes that list each other."""
    nodes = [SimulatedBroker(network, name, names) for name in names]
    for node in nodes:
        node.start()
    return nodes


def _ignore(machine: SimulatedBroker, number: int) -> None:
    """Do nothing: the default of a callback."""


def _fail(machine: SimulatedBroker, reason: str) -> None:
    machine.schedule.faults.append(f"{machine.name} has ended: {reason}")
