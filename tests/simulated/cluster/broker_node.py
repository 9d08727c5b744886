"""One node of a simulated cluster: the real `ClusterNode`, with its broker, log, Raft and links."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from leveret.cluster.member import NodeSettings
from leveret.cluster.peers import Address
from leveret.config.option import Secret
from leveret.config.settings import Settings
from leveret.listening import Client, Networks
from leveret.runtime.cluster_node import ClusterNode
from leveret.runtime.node import Node
from leveret.runtime.public_listeners import PublicListeners
from leveret.storage.replication import Replication
from tests.simulated.disk import SimulatedDisk
from tests.simulated.loop import NodeLoop, new_loop
from tests.simulated.network import Network
from tests.simulated.node import AMQP_PORT, HEARTBEAT_S, PASSWORD, USER, SimulatedClock

CLUSTER_PORT: Final = 25_672
SECRET: Final = b"a secret of a simulated cluster"


class _ClusterNode(ClusterNode):
    """A node whose broker speaks AMQP only."""

    def make_node(self, replication: Replication) -> Node:
        return Node(
            self.settings,
            self._clock,
            serves_http=False,
            listens=False,
            disk=self._disk,
            replication=replication,
        )


class SimulatedBroker:
    """A machine with a disk, and the process of a cluster's node that runs on it."""

    def __init__(self, network: Network, name: str, names: list[str]) -> None:
        self.network = network
        self.schedule = network.schedule
        self.name = name
        self.disk = SimulatedDisk()
        self.clock = SimulatedClock(self.schedule)
        self.loop: NodeLoop | None = None  # None: no process runs
        self.node: ClusterNode | None = None
        self._names = names

    def url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@{self.name}:{AMQP_PORT}/?heartbeat={HEARTBEAT_S}"

    def start(self) -> None:
        """Start a process on the disk."""
        assert self.loop is None
        loop = self.loop = new_loop(self.schedule, self.name, self.network)
        self.disk.loop = loop
        settings = Settings(default_user=USER, default_pass=Secret(PASSWORD), node=self.name)
        peers = {name: Address(name, CLUSTER_PORT) for name in self._names}
        cluster = NodeSettings(
            name=self.name, address=f"{self.name}:{CLUSTER_PORT}", peers=peers, secret=SECRET
        )
        chance = Random(self.schedule.rng.getrandbits(62))
        node = loop.run_inside(
            lambda: _ClusterNode(settings, cluster, self.clock, self.disk, chance=chance)
        )
        self.node = node
        listeners = PublicListeners(node.find_server, 0, Networks(""))

        def accept() -> asyncio.BaseProtocol:
            client = Client("10.0.0.1", 0, is_local=False)
            assert listeners.enter(client.host, -1)
            return listeners.make_protocol("amqp", client)

        self.network.listen(loop, accept, self.name, AMQP_PORT)
        loop.start(node.start(self.name, CLUSTER_PORT))

    def is_serving(self) -> bool:
        """Return True if this node leads and serves clients."""
        return self.node is not None and self.node.is_serving

    def kill(self) -> None:
        """Kill the process: the disk keeps everything that was written."""
        self._end(is_silent=False)
        self.disk = self.disk.killed()

    def lose_power(self) -> None:
        """Stop the machine: the disk may lose everything that was not synced."""
        self._end(is_silent=True)
        self.disk = self.disk.crash(self.schedule.rng)

    def stop(self) -> None:
        """Stop the process in order."""
        assert self.node is not None
        assert self.loop is not None
        self.loop.run(self.node.stop())
        self._end(is_silent=False)
        self.disk = self.disk.copy()

    def _end(self, *, is_silent: bool) -> None:
        assert self.loop is not None
        self.network.kill(self.loop, is_silent=is_silent)
        self.loop = None
        self.node = None
