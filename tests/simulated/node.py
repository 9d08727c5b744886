"""Machines of a simulated world: the real node on a simulated loop, network and disk."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol
from weakref import ref

from leveret.clock import Clock
from leveret.config.option import Secret
from leveret.config.settings import Settings
from leveret.listening.clients import Client
from leveret.runtime.node import Node
from tests.simulated.disk import SimulatedDisk
from tests.simulated.loop import NodeLoop, new_loop
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

AMQP_PORT: Final = 5672
HEARTBEAT_S: Final = 2  # a client notices by it that a machine has lost power
USER: Final = "sim"
PASSWORD: Final = "simulated"  # of a world without anybody outside
START_MS: Final = 1_700_000_000_000


class SimulatedClock(Clock):
    """The wall clock of a node, which may be wrong by `skew_ms`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.skew_ms = 0
        self._raised_ms = 0

    def now_ms(self) -> int:
        now_ms = START_MS + int(self._schedule.now_s * 1000) + self.skew_ms
        return max(now_ms, self._raised_ms)

    def ahead_ms(self) -> int:
        return self.now_ms() - START_MS - int(self._schedule.now_s * 1000) - self.skew_ms

    def offset_ms(self) -> int:
        return self.skew_ms

    def raise_to(self, now_ms: int) -> None:
        self._raised_ms = max(now_ms, self._raised_ms)


class Stoppable(Protocol):
    """The node that runs in a process."""

    async def stop(self) -> None:
        """Stop in order."""


class Machine:
    """A machine with a disk and a clock, and the process that runs on it."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.schedule = network.schedule
        self.name = name
        self.disk = SimulatedDisk()
        self.clock = SimulatedClock(self.schedule)
        self.loop: NodeLoop | None = None  # None: no process runs

    def url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@{self.name}:{AMQP_PORT}/?heartbeat={HEARTBEAT_S}"

    def settings(self) -> Settings:
        return Settings(
            amqp_port=AMQP_PORT, default_user=USER, default_pass=Secret(PASSWORD), node=self.name
        )

    def begin(self) -> NodeLoop:
        """Return the loop of a new process, which uses the disk."""
        assert self.loop is None
        loop = self.loop = new_loop(self.schedule, self.name, self.network)
        self.disk.loop = loop
        return loop

    def process(self) -> Stoppable:
        """Return the node that runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill the process: the disk keeps everything that was written."""
        self.end(is_silent=False)
        self.disk = self.disk.killed()

    def lose_power(self) -> None:
        """Stop the machine: the disk may lose everything that was not synced."""
        self.end(is_silent=True)
        self.disk = self.disk.crash(self.schedule.rng)

    def stop(self) -> None:
        """Stop the process in order."""
        assert self.loop is not None
        self.loop.run(self.process().stop())
        self.kill()

    def end(self, *, is_silent: bool) -> None:
        """End the process. Its peers notice, unless `is_silent`."""
        assert self.loop is not None
        self.network.kill(self.loop, is_silent=is_silent)
        self.loop = None


class _Node(Node):
    """A node that listens in the simulated network, for AMQP only."""

    network: Network
    loop: NodeLoop

    def _listen_amqp(self) -> None:
        self.network.listen(self.loop, self._accept, self.settings.node, AMQP_PORT)

    def _accept(self) -> asyncio.BaseProtocol:
        client = Client("10.0.0.1", 0, is_local=False)
        assert self.amqp.admission.enter(client.host, -1)
        return self.amqp.make_protocol(client)


def settle_at_end(schedule: Schedule, node: Node) -> None:
    """Take the messages of a node out of flight when the run is over.

    A killed node never does that. The garbage collector does not see messages in the compiled form
    (`leveret.engine.message`), so one in flight would keep the whole run in memory.
    """
    schedule.at_end.append(partial(_settle, ref(node)))


def _settle(found: ref[Node]) -> None:
    node = found()
    if node is not None and hasattr(node, "jobs"):  # it has begun to start
        for message in node.view.in_flight():
            message.holder = None


class SimulatedNode(Machine):
    """A machine that runs a broker alone."""

    node: _Node

    def process(self) -> Stoppable:
        return self.node

    def start(self) -> None:
        """Start a process on the disk, and run the world until it listens."""
        loop = self.begin()
        node = loop.run_inside(
            lambda: _Node(self.settings(), self.clock, serves_http=False, disk=self.disk)
        )
        node.network = self.network
        node.loop = loop
        self.node = node
        settle_at_end(self.schedule, node)
        loop.run(node.start())
