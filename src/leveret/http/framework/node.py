"""What the HTTP front may ask of the running node.

The node gives an object of this shape to `HttpFront`; the resources under /api read it and nothing
else of the node. Kept apart from app.py so that naming the type does not import Starlette.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from leveret.arrow.reads import BulkReads
from leveret.auth import Authority, Directory
from leveret.config.settings import Settings
from leveret.definitions import Book
from leveret.engine.broker import Broker
from leveret.engine.turns.retired_counts import Counts
from leveret.engine.turns.session import Outlet, Session
from leveret.http.framework.pace import Slices
from leveret.http.framework.request_counts import Requests
from leveret.leases import Leases
from leveret.shovels import ShovelManager
from leveret.tasks import Tasks

DESCRIPTORS_KEPT: Final = 64  # for files, however many clients come


class Backups(Protocol):
    """Makes backups, and restores queues from them."""

    async def node(self) -> AsyncIterator[bytes]:
        """An archive of everything durable, as of now."""

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        """An archive of one queue, as of now."""

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        """Publish what an archive holds into a queue; how many messages."""


@dataclass(slots=True, kw_only=True)
class Connected:
    """One connection, as it is now."""

    name: str  # "host:port -> host:port"
    state: str
    user: str  # empty until the login
    vhost: str  # empty until it is open
    peer_host: str
    peer_port: int
    host: str
    port: int
    mechanism: str
    frame_max: int
    channel_max: int
    heartbeat_s: int
    connected_ms: int
    heartbeat_ms: int  # when the last heartbeat came; 0: none yet
    channels: int
    received_bytes: int
    received_count: int
    sent_bytes: int
    sent_count: int
    pending_bytes: int  # handed to the socket and not taken by the peer
    client_properties: Mapping[str, object]
    tls: Mapping[str, str] = field(default_factory=dict)  # protocol, cipher …; empty without TLS


@dataclass(slots=True, kw_only=True)
class Opened:
    """What is known of a channel besides what its session has."""

    state: str
    transactional: bool
    publishes_uncommitted: int
    acks_uncommitted: int
    delivered_no_ack: int  # to consumers that are there, and to those that are gone


class Connections(Protocol):
    """The connections of AMQP clients. What they are made of is an engine's `Outlet`."""

    def outlets(self) -> Sequence[Outlet]:
        """All of them, in the order in which they came."""

    def owner(self, outlet: Outlet) -> tuple[str, str]:
        """User and vhost of a connection, empty where it has none: cheap, to choose by."""

    def connected(self, outlet: Outlet) -> Connected | None:
        """What a connection is; None where it is gone."""

    def sessions(self, outlet: Outlet) -> Sequence[Session]:
        """The channels of a connection; none where it is gone."""

    def opened(self, session: Session) -> Opened:
        """What a channel is."""

    def add_counts(self, counts: Counts, vhost: str) -> None:
        """Add what the live connections of a vhost have counted."""

    def close(self, outlet: Outlet, reason: str) -> None:
        """Close a connection by 320, with this reason; one that is gone is no error."""


@dataclass(slots=True, kw_only=True)
class Machine:
    """What the node takes of its machine, as it is now."""

    pid: int
    started_ms: int
    memory_used_bytes: int  # of the process
    memory_held_bytes: int  # by messages: what the alarm looks at
    memory_limit_bytes: int
    disk_free_bytes: int
    disk_limit_bytes: int
    descriptors_used: int
    descriptors_max: int
    processors: int
    load: float  # of the last minute
    context_switches: int
    data: str  # directory; empty where nothing is stored

    def amqp_sockets_end(self) -> int:
        """Descriptors of AMQP clients are below this: the rest is for files, and who looks in.

        A system gives out the lowest number that is free. 0 where there is no limit.
        """
        return max(0, self.descriptors_max - 2 * self._descriptors_kept())

    def http_sockets_end(self) -> int:
        """The same for HTTP: it answers when AMQP clients have taken all that they may have."""
        return max(0, self.descriptors_max - self._descriptors_kept())

    def _descriptors_kept(self) -> int:
        return min(self.descriptors_max // 8, DESCRIPTORS_KEPT)


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that the node listens on."""

    protocol: str  # amqp, amqp/ssl, http, https
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class LoopFacts:
    """How the event loop and the log keep up. Quantiles are upper bounds of histograms."""

    turns: int  # of the engine, since the start
    lag_ms_p50: float  # how late a timer runs while there is something to do
    lag_ms_p99: float
    lag_ms_max: float
    syncs: int  # of the log
    sync_ms_p50: float
    sync_ms_p99: float
    sync_ms_max: float
    log_bytes: int
    log_files: int


class Metrics(Protocol):
    """What the node tells of itself in numbers."""

    @property
    def requests(self) -> Requests:
        """Counts of HTTP requests, kept by this front."""

    def scrape(self, endpoint: str, slices: Slices) -> AsyncIterator[bytes]:
        """A whole answer in Prometheus's text format: "aggregated" or "per-object"."""

    def scrape_groups(
        self,
        groups: frozenset[str],
        vhosts: frozenset[str],
        queues: tuple[str, ...],
        slices: Slices,
    ) -> AsyncIterator[bytes]:
        """The families of some groups, for some vhosts and queues."""

    def loop(self) -> LoopFacts:
        """How the loop keeps up."""


class Jobs(Protocol):
    """The jobs service."""

    async def store(self) -> Any:
        """What keeps the jobs (`leveret.job_service.store.Store`); opened with the first call.

        It is not named by its type because that would import msgspec into every start.
        """

    def namespaces(self, token: str) -> frozenset[str]:
        """The namespaces that a token is good for. Raises TokenRefused."""

    def sign(self, namespaces: list[str], subject: str, lasts_s: int) -> str:
        """A token. Raises TokenRefused where they are made elsewhere."""


class NodeView(Protocol):
    """The node, as seen from HTTP."""

    @property
    def settings(self) -> Settings:
        """How the node was set up."""

    @property
    def product_version(self) -> str:
        """The version of RabbitMQ whose behaviour this is."""

    @property
    def connections(self) -> Connections:
        """Who is connected."""

    def now_ms(self) -> int:
        """The time of the node."""

    def machine(self) -> Machine:
        """What the node takes of its machine."""

    def listeners(self) -> Sequence[Listener]:
        """Where it listens."""

    def certificates(self) -> Sequence[tuple[str, int]]:
        """Each certificate that is in use, by name, and when it ends."""

    @property
    def metrics(self) -> Metrics:
        """What the node tells of itself in numbers."""

    @property
    def node_name(self) -> str:
        """The name of this node."""

    @property
    def durability(self) -> str:
        """When a message counts as safe: "sync", "os", or "none" where nothing is stored."""

    @property
    def authority(self) -> Authority:
        """Who may ask."""

    @property
    def directory(self) -> Directory:
        """Users and permissions. They are changed inside a `turn` only."""

    @property
    def book(self) -> Book:
        """Vhosts, policies, limits and parameters. They are changed inside a `turn` only."""

    @property
    def broker(self) -> Broker:
        """The engine. It is changed inside a `turn` only."""

    @property
    def backups(self) -> Backups:
        """Backup and restore."""

    def alarms(self) -> Sequence[str]:
        """The alarms in force, each as a sentence; empty when all is well."""

    def turn(self) -> AbstractContextManager[None]:
        """A turn of the engine around some commands."""

    def send_away(self, vhost: str) -> None:
        """Close all connections of a vhost that is being deleted, inside a `turn`."""

    async def synced(self) -> None:
        """Return when everything up to now is on disk; StorageError where it cannot be."""

    def sessions(self) -> list[Session]:
        """Everything that may hold messages in flight."""

    @property
    def tasks(self) -> Tasks:
        """Long work on messages."""

    @property
    def leases(self) -> Leases:
        """What readers hold in epochs."""

    @property
    def shovels(self) -> ShovelManager:
        """What carries messages between brokers."""

    @property
    def jobs(self) -> Jobs:
        """The jobs service."""

    @property
    def bulk_reads(self) -> BulkReads:
        """Reads of whole ranges of streams."""
