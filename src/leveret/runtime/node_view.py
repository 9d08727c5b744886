"""Answer the questions of the HTTP front about the running node.

`HttpNodeView` implements `leveret.http.framework.node.NodeView`. The node makes one at its start
and gives it to the HTTP front, the metrics and the jobs service. The view holds references to the
parts of the node and starts or stops none of them. Answers are computed at each call; nothing is
cached.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from leveret.amqp.connection_base import AmqpFront
from leveret.amqp.server import AmqpServer
from leveret.arrow.bulk_reads import BulkReads
from leveret.auth import Authenticator, UserDirectory
from leveret.clock import Clock, duration_text
from leveret.config.settings import Settings
from leveret.definitions import Definitions
from leveret.engine.broker import Broker
from leveret.engine.message import Message
from leveret.engine.turns.session import Session
from leveret.federation import FederationManager
from leveret.http.framework.node import ClusterControl, Listener, Machine
from leveret.leases import ReaderLeases
from leveret.runtime import machine
from leveret.runtime.backups import NodeBackups
from leveret.runtime.certificates import Certificates
from leveret.runtime.connections_view import ConnectionsView
from leveret.runtime.jobs import NodeJobs
from leveret.runtime.sync_barrier import SyncBarrier, SyncEnd
from leveret.runtime.sync_watch import SyncWatch
from leveret.runtime.telemetry import Telemetry
from leveret.runtime.turns import TurnRunner
from leveret.shovels import ShovelManager
from leveret.storage.store import Store
from leveret.tasks import Tasks

CLOCK_BEHIND_MS = 60_000  # a start that finds a log so far in the future warns
NO_STORE = "none"  # the durability of a node without a data directory


class HttpNodeView:
    """The running node, as seen from HTTP."""

    # The node sets these during its start, before anybody asks for them.
    backups: NodeBackups
    federation: FederationManager
    jobs: NodeJobs
    leases: ReaderLeases
    metrics: Telemetry
    shovels: ShovelManager
    tasks: Tasks
    cluster: ClusterControl | None = None  # set if this node leads a cluster

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        started_ms: int,
        memory_limit_bytes: int,
        broker: Broker,
        directory: UserDirectory,
        definitions: Definitions,
        front: AmqpFront,
        amqp: AmqpServer,
        turns: TurnRunner,
        store: Store | None,
        sync_barrier: SyncBarrier,
        sync_watch: SyncWatch,
        certificates: Certificates | None,
        bulk_reads: BulkReads,
        held_bytes: Callable[[], int],
        background_faults: Callable[[], list[str]],
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.directory = directory
        self.definitions = definitions
        self.bulk_reads = bulk_reads
        self.connections = ConnectionsView(amqp)
        self.bound: list[Listener] = []  # the addresses that the node listens on
        self._clock = clock
        self._started_ms = started_ms
        self._memory_limit_bytes = memory_limit_bytes
        self._front = front
        self._amqp = amqp
        self._turn = _Turn(turns)
        self._store = store
        self._sync_barrier = sync_barrier
        self._sync_watch = sync_watch
        self._held_bytes = held_bytes
        self._certificates = certificates
        self.background_faults = background_faults

    @property
    def node_name(self) -> str:
        return self.settings.node

    @property
    def durability(self) -> str:
        return self._store.durability if self._store is not None else NO_STORE

    def clock_fault(self) -> str:
        """Return what is wrong with the time, as a sentence; empty if nothing is.

        In a cluster its faults say it, if the time of the broker is ahead of the machine's.
        """
        behind_ms = self._store.last_ms - self._clock.now_ms() if self._store is not None else 0
        if behind_ms >= CLOCK_BEHIND_MS:
            late = duration_text(behind_ms)
            return (
                f"the machine's time is {late} before the newest entry of the log: expiries, "
                f"delays and leases from before that entry come up to {late} late"
            )
        ahead_ms = self._clock.ahead_ms()
        if self.cluster is not None or ahead_ms < CLOCK_BEHIND_MS:
            return ""
        return (
            f"the machine's time was set back and is {duration_text(ahead_ms)} behind the time of "
            "the broker, which runs at half speed until both agree: delays, expiries and leases "
            "take up to twice as long; correct the machine's time if it is wrong, else restart the "
            "node to use it at once"
        )

    def slow_sync_s(self) -> float:
        cluster = self.cluster
        return self._sync_watch.slow_sync_s if cluster is None else cluster.slow_sync_s()

    @property
    def product_version(self) -> str:
        return self.definitions.rabbit_version

    @property
    def authenticator(self) -> Authenticator:
        return self._front.authenticator

    @property
    def clock_moves(self) -> bool:
        """False if a test moves the clock by hand."""
        return self._clock.moves

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def machine(self) -> Machine:
        folder = self._store.disk.folder if self._store is not None else None
        return machine.read_machine(
            folder,
            started_ms=self._started_ms,
            held_bytes=self._held_bytes(),
            limit_bytes=self._memory_limit_bytes,
            disk_limit_bytes=self.settings.disk_free_min,
        )

    def listeners(self) -> Sequence[Listener]:
        return self.bound

    def certificates(self) -> Sequence[tuple[str, int]]:
        return [] if self._certificates is None else self._certificates.ends()

    def alarms(self) -> Sequence[str]:
        return [f"low on {reason}" for reason in self._front.alarms]

    def sessions(self) -> list[Session]:
        holders = (self.shovels, self.jobs, self.leases)
        found: list[Session] = [each for holder in holders for each in holder.sessions()]
        for connection in self._amqp.protocols:
            found.extend(connection.channels.values())
        return found

    def in_flight(self) -> list[Message]:
        """Return all messages that are not settled, or settled only in an open transaction."""
        held: list[Message] = []
        for session in self.sessions():
            held.extend(session.unacked.messages())
            held.extend(session.undecided())
        return held

    def turn(self) -> AbstractContextManager[None]:
        return self._turn

    def close_connections(self, vhost: str) -> None:
        self._amqp.close_vhost(vhost)

    async def synced(self) -> None:
        await self._sync_barrier.wait()

    def begin_sync(self) -> "asyncio.Future[None]":
        return self._sync_barrier.begin_wait()

    def sync_end(self) -> SyncEnd:
        return self._sync_barrier.sync_end()

    async def tellable(self) -> None:
        await self._sync_barrier.wait_to_tell()


class _Turn:
    """A turn as a context manager. It keeps no state, so that one serves all turns of a node."""

    def __init__(self, turns: TurnRunner) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._turns.begin()

    def __exit__(self, *_: object) -> None:
        self._turns.end()
