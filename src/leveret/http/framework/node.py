"""NodeView: the interface through which the HTTP front asks the running node.

The node passes an object of this shape to `HttpFront`. The resources under /api read it and nothing
else of the node. This module is apart from app.py, so that naming the type does not import
Starlette.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from leveret.arrow.bulk_reads import BulkReads
from leveret.auth import Authenticator, JobAccess, User, UserDirectory
from leveret.config.settings import Settings
from leveret.definitions import Definitions
from leveret.engine.broker import Broker
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Outlet, Session
from leveret.federation import FederationManager
from leveret.http.framework.request_counts import RequestCounts
from leveret.job_service.report import StoreReport
from leveret.leases import ReaderLeases
from leveret.shovels import ShovelManager
from leveret.slices import Slices
from leveret.tasks import Tasks

DESCRIPTORS_KEPT: Final = 512  # file descriptors for files alone, and as many for HTTP


@dataclass(frozen=True)
class ClusterNodeFacts:
    """One node of the cluster, as the node that answers knows it."""

    name: str
    is_leader: bool
    is_voter: bool
    is_running: bool  # it is this node, or connected with it
    last_index: int  # last block that it is known to have; 0: unknown
    is_drained: bool = False  # it leads only if no other node can
    can_write: bool = True  # False: it has reported to the leader that its disk is full


class ClusterControl(Protocol):
    """The cluster that a node belongs to."""

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return all nodes of the cluster, this one included, by name."""

    def report_of(self, name: str) -> "NodeReport | None":
        """Return the resources of another node; None if it has not reported them lately."""

    def raft_indexes(self) -> tuple[int, int]:
        """Return the term, and the last committed block."""

    def reasons(self) -> list[str]:
        """Return why the cluster waits, or what it lacks, as sentences; none if all is well."""

    def state(self) -> str:
        """Return `ok`, `degraded` (it serves clients, and needs a repair) or `stopped`."""

    def missing_nodes(self) -> list[str]:
        """Return listed nodes that are not in the cluster yet."""

    def facts(self) -> dict[str, Any]:
        """Return the cluster as this node sees it, as JSON."""

    def slow_sync_s(self) -> float:
        """Return the time of a sync of this node while its disk is slow; 0 if it is not."""

    async def command(self, name: str, node: str) -> str:
        """Do `lead`, `remove`, `drain` or `revive` on a node; return a sentence.

        Raise a LeveretError with the reason if it is not done.
        """


class Backups(Protocol):
    """Make backups, and restore queues from them."""

    async def node(self) -> AsyncIterator[bytes]:
        """Return an archive of all durable objects, as of now."""

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        """Return an archive of one queue, as of now."""

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        """Publish the messages of an archive into a queue. Return how many."""


@dataclass(slots=True, kw_only=True)
class ConnectionSnapshot:
    """The state of one connection, as of now."""

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
    pending_bytes: int  # given to the socket and not yet sent
    client_properties: Mapping[str, object]
    tls: Mapping[str, str] = field(default_factory=dict)  # protocol, cipher …; empty without TLS


@dataclass(slots=True, kw_only=True)
class ChannelSnapshot:
    """The state of a channel beyond its session, as of now."""

    state: str
    transactional: bool
    publishes_uncommitted: int
    acks_uncommitted: int
    delivered_no_ack: int  # to current and to former consumers


class Connections(Protocol):
    """The connections of AMQP clients. The engine's `Outlet` identifies a connection."""

    def outlets(self) -> Sequence[Outlet]:
        """Return all connections, oldest first."""

    def owner(self, outlet: Outlet) -> tuple[str, str]:
        """Return the identity of the user, and the vhost; each empty before it is known.

        This is cheap.
        """

    def client_name(self, outlet: Outlet) -> str:
        """Return the name that the client has given its connection, or an empty text."""

    def snapshot(self, outlet: Outlet) -> ConnectionSnapshot | None:
        """Return the state of a connection, or None if it is closed."""

    def sessions(self, outlet: Outlet) -> Sequence[Session]:
        """Return the channels of a connection; none if it is closed."""

    def channel_snapshot(self, session: Session) -> ChannelSnapshot:
        """Return the state of a channel."""

    def add_counts(self, counts: TrafficCounts, vhost: str) -> None:
        """Add the counts of the live connections of a vhost."""

    def close(self, outlet: Outlet, reason: str) -> None:
        """Close a connection with code 320 and this reason. Do nothing if it is closed."""


@dataclass(slots=True, kw_only=True)
class Machine:
    """Resources of the machine that the node uses, as of now."""

    pid: int
    started_ms: int
    memory_used_bytes: int  # of the process
    memory_held_bytes: int  # by messages and buffers; the memory alarm compares this with the limit
    memory_limit_bytes: int
    disk_free_bytes: int
    disk_limit_bytes: int
    descriptors_used: int
    descriptors_max: int
    processors: int
    load: float  # average of the last minute
    context_switches: int
    data: str  # directory; empty if nothing is stored

    def amqp_sockets_end(self) -> int:
        """Return the first file descriptor that AMQP clients may not use; 0 if there is no limit.

        The rest is for files and for HTTP. The system always assigns the lowest free number.
        """
        return max(0, self.descriptors_max - 2 * self._descriptors_kept())

    def http_sockets_end(self) -> int:
        """Return the first file descriptor that HTTP clients may not use; 0 if there is no limit.

        It is higher than for AMQP: HTTP answers after AMQP clients have used all of theirs.
        """
        return max(0, self.descriptors_max - self._descriptors_kept())

    def _descriptors_kept(self) -> int:
        return min(self.descriptors_max // 8, DESCRIPTORS_KEPT)


@dataclass(frozen=True)
class NodeReport:
    """Resources and faults of another node, a few seconds ago.

    Fields with a default are missing in reports of older versions.
    """

    uptime_ms: int  # its clock may differ from the clock of this node
    machine: Machine
    version: str = ""
    now_ms: int = 0  # the time of its machine
    clients: int | None = None  # AMQP connections that it relays
    disk_fault: str = ""  # why its log cannot be written now; empty: it can
    relay_fault: str = ""  # why it does not reach the leader for its clients; empty: it does
    open_secret_file: str = ""  # its secret file, if other users of its machine may read it
    expired_certificate: str = ""  # the file of a certificate of it that has expired
    slow_sync_s: float = 0.0  # time of a sync while its disk is slow; 0: it is not
    age_ms: int = 0  # time since the report came; set by the node that has it


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that the node listens on."""

    protocol: str  # amqp, amqp/ssl, http, https
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class LoopStats:
    """Delays of the event loop and of the log. Quantiles are upper bounds of histograms."""

    turns: int  # of the engine, since the start
    lag_ms_p50: float  # delay of timers while the loop has work
    lag_ms_p99: float
    lag_ms_max: float
    syncs: int  # of the log
    sync_ms_p50: float
    sync_ms_p99: float
    sync_ms_max: float
    log_bytes: int
    log_files: int


class Metrics(Protocol):
    """Metrics of the node."""

    @property
    def requests(self) -> RequestCounts:
        """Return the counts of HTTP requests, which this front keeps."""

    def scrape(self, endpoint: str, slices: Slices) -> AsyncIterator[bytes]:
        """Yield all metrics in Prometheus's text format: "aggregated" or "per-object"."""

    def scrape_groups(
        self,
        groups: frozenset[str],
        vhosts: frozenset[str],
        queues: tuple[str, ...],
        slices: Slices,
    ) -> AsyncIterator[bytes]:
        """Yield the families of some groups, for some vhosts and queues."""

    def loop(self) -> LoopStats:
        """Return the delays of the event loop and of the log."""


class Jobs(Protocol):
    """The jobs service."""

    def maybe_store(self) -> Any:
        """Return the store of jobs as `store` does; None if no call has opened it."""

    async def store(self) -> Any:
        """Return the store of jobs (`leveret.job_service.store.Store`); the first call opens it.

        The return type is Any, because naming the class would import msgspec at every start.
        """

    def report(self) -> StoreReport:
        """Return the state of the store without I/O; an empty report if it is not open."""

    async def full_report(self) -> StoreReport:
        """Return the state of the store with its topics, which are counted now and then."""

    def access(self, token: str) -> JobAccess:
        """Return the access that a token gives. Raise TokenRefusedError."""

    def sign_for(self, user: User, lasts_s: int) -> tuple[str, int]:
        """Return a new token for a user, and when it expires, in milliseconds.

        Raise TokenRefusedError if another service issues the tokens.
        """


class NodeView(Protocol):
    """The node, as seen from HTTP."""

    @property
    def cluster(self) -> ClusterControl | None:
        """Return the cluster of the node; None if it is not in one."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the node."""

    @property
    def product_version(self) -> str:
        """Return the version of RabbitMQ that the node behaves like."""

    @property
    def connections(self) -> Connections:
        """Return the connections of AMQP clients."""

    def now_ms(self) -> int:
        """Return the time of the node."""

    def background_faults(self) -> list[str]:
        """Return why work in the background fails, as sentences; none if all is well."""

    def clock_fault(self) -> str:
        """Return that the machine's time was set back before the start; empty if it was not."""

    def slow_sync_s(self) -> float:
        """Return the time of a sync of the log while the disk is slow; 0 if it is not."""

    def machine(self) -> Machine:
        """Return the resources that the node uses."""

    def listeners(self) -> Sequence[Listener]:
        """Return the addresses that the node listens on."""

    def certificates(self) -> Sequence[tuple[str, int]]:
        """Return the name and the end (in ms since 1970) of each certificate in use."""

    @property
    def metrics(self) -> Metrics:
        """Return the metrics of the node."""

    @property
    def node_name(self) -> str:
        """Return the name of this node."""

    @property
    def durability(self) -> str:
        """Return when a message counts as safe: "sync", "os", or "none" if nothing is stored."""

    @property
    def authenticator(self) -> Authenticator:
        """Return the authenticator, which checks logins."""

    @property
    def directory(self) -> UserDirectory:
        """Return users and permissions. Change them only inside a `turn`."""

    @property
    def definitions(self) -> Definitions:
        """Return vhosts, policies, limits, parameters. Change them only inside a `turn`."""

    @property
    def broker(self) -> Broker:
        """Return the engine. Change it only inside a `turn`."""

    @property
    def backups(self) -> Backups:
        """Return the service that makes and restores backups."""

    def alarms(self) -> Sequence[str]:
        """Return the current alarms, each as a text; none if the node is well."""

    def turn(self) -> AbstractContextManager[None]:
        """Return a context manager that runs commands in one turn of the engine."""

    def close_connections(self, vhost: str) -> None:
        """Close all connections of a vhost before it is deleted. Call it inside a `turn`."""

    async def synced(self) -> None:
        """Return when all changes so far are on disk. Raise StorageError if that fails."""

    async def tellable(self) -> None:
        """Return when every change that an answer could show is safe.

        A single node returns at once. The leader of a cluster waits for a commit. Raise
        StorageError if the commit fails.
        """

    def sessions(self) -> list[Session]:
        """Return all sessions that may hold messages in flight."""

    @property
    def tasks(self) -> Tasks:
        """Return the tasks: long-running work on messages."""

    @property
    def leases(self) -> ReaderLeases:
        """Return the leases: messages that named readers hold in epochs."""

    @property
    def shovels(self) -> ShovelManager:
        """Return the shovels, which carry messages between brokers."""

    @property
    def federation(self) -> FederationManager:
        """Return the federation links, which fetch messages from other brokers."""

    @property
    def jobs(self) -> Jobs:
        """Return the jobs service."""

    @property
    def bulk_reads(self) -> BulkReads:
        """Return the bulk reads of streams and queues."""
