"""A node: one broker with its fronts on one event loop.

This module makes the parts of a node, connects them, starts them and stops them. Other modules do
the work: `turns` drives the engine, `node_view` answers the HTTP front, `node_events` raises alarms
and publishes events.
"""

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable

from leveret import __version__
from leveret.amqp.commit_gate import CommitGate
from leveret.amqp.connection_base import AmqpFront, ConnectionLimits
from leveret.amqp.server import AmqpServer
from leveret.arrow.bulk_reads import BulkReads
from leveret.auth import UserDirectory, is_loopback
from leveret.auth.login_throttle import LoginThrottle
from leveret.clock import Clock
from leveret.config.settings import Settings, memory_high_bytes
from leveret.definitions import Definitions
from leveret.definitions.parameters import CLUSTER_NAME
from leveret.engine.broker import Broker
from leveret.engine.history.tracing import TracedMessages
from leveret.engine.vhosts import pausing
from leveret.errors import ConfigError, LeveretError
from leveret.heap import give_back_memory
from leveret.http.framework.node import Listener
from leveret.http.transport.front import HttpFront
from leveret.leases import ReaderLeases
from leveret.listening import Networks, PortHints
from leveret.runtime.background import BackgroundFaults
from leveret.runtime.backups import NodeBackups
from leveret.runtime.certificates import Certificates
from leveret.runtime.clock_watch import ClockWatch
from leveret.runtime.connection_log import log_event
from leveret.runtime.federation import make_federation
from leveret.runtime.jobs import NodeJobs
from leveret.runtime.login_thread import LoginThread
from leveret.runtime.loop_watch import LoopWatch
from leveret.runtime.memory_alarm import (
    UNFINISHED_SHARE,
    MemoryAlarm,
    held_bytes,
    machine_bytes,
)
from leveret.runtime.node_events import NodeEvents
from leveret.runtime.node_view import HttpNodeView
from leveret.runtime.shovels import load_shovels, make_local_node, make_shovels
from leveret.runtime.start_faults import naming
from leveret.runtime.sync_barrier import SyncBarrier
from leveret.runtime.sync_watch import SyncWatch
from leveret.runtime.telemetry import Telemetry
from leveret.runtime.tracing import SpanExporter, otlp_exporter
from leveret.runtime.turns import TurnRunner
from leveret.storage.disk import Disk
from leveret.storage.disk_space import RESERVE_BYTES
from leveret.storage.log import FILE_BYTES, Log
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.replicated_log import ReplicatedLog
from leveret.storage.replication import Replication
from leveret.storage.store import Store
from leveret.tasks import Tasks

log = logging.getLogger(__name__)

# Product and version that clients are told. Client libraries choose behaviour by them, so they name
# the version of RabbitMQ whose behaviour this is; `platform` and `information` name Leveret.
PRODUCT = "RabbitMQ"
PRODUCT_VERSION = "4.3.0"

DRAIN_S = 2.0
NO_PASSWORD = (
    "host: other machines can reach {host}, but the only login is guest/guest, which everybody"
    " knows: set another password with --default-pass or LEVERET_DEFAULT_PASS"
)


class NotWantedError(LeveretError):
    """Raised by `Node.start` of a node that lost the lead of its cluster during its recovery."""


class Node:
    """One running broker."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        serves_http: bool = True,
        listens: bool = True,
        disk: Disk | None = None,
        replication: Replication | None = None,
    ) -> None:
        """Make a node. With a `replication` it leads a cluster, whose member is its owner."""
        self.settings = settings
        self.broker = Broker(secrets.randbits(62), settings.definitions_bytes_max)
        self.broker.parks = settings.park_over_limit
        self.broker.parks_cycles = settings.park_cycles
        self.broker.turn.node_name = settings.node
        self.broker.begin_turn(clock.now_ms())
        self.directory = UserDirectory(
            self.broker.register, clock.now_ms, LoginThrottle(settings.login_failures_max)
        )
        self.directory.quotas.connections_max = settings.connections_max
        self.definitions = Definitions(self.broker, settings.node, PRODUCT_VERSION)
        self.front = AmqpFront(self.broker, self.directory, _limits(settings), _token)
        self.front.server_properties = _server_properties(settings.node)
        self.front.on_event = log_event
        self.front.port_hints = PortHints(settings)
        self.amqp_address = ("", 0)
        self.http_address = ("", 0)
        # The addresses for TLS; None if the node does not serve it.
        self.amqps_address: tuple[str, int] | None = None
        self.https_address: tuple[str, int] | None = None
        self._certificates: Certificates | None = None
        self._reloads: list[Callable[[], object]] = []  # reload files that may change
        self._key_refresher: asyncio.Task[None] | None = None
        self.recovered_facts: dict[str, object] = {}  # what was found on disk, for the log
        self._store: Store | None = None
        if disk is not None:
            self._store = Store(disk, self.broker, settings.durability)
        self._clock_watch = ClockWatch(clock)
        self._sync_watch = SyncWatch(str(settings.data), self.maybe_log)
        self.bulk_reads = BulkReads(disk.folder if disk is not None else None)
        self.background = BackgroundFaults()
        self._span_exporter: SpanExporter | None = None
        if settings.otel_endpoint:
            traced_messages = TracedMessages()
            export = otlp_exporter(settings.otel_endpoint, settings.node)
            self._span_exporter = SpanExporter(traced_messages, export)
            self.background.watch(self._span_exporter)
            self.broker.turn.traced_messages = traced_messages
        self.log_file_bytes = FILE_BYTES  # a log file of this size is full
        self.reserve_bytes = RESERVE_BYTES  # kept for a full disk
        self._replication = replication
        self._gate: CommitGate | None = None  # holds the output of a leader until a commit
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._serves_http = serves_http
        self.http: HttpFront | None = None
        self._listens = listens  # False: its clients are given to `amqp` and `http`
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self,
        on_recovered: Callable[[], None] | None = None,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Recover from disk and listen.

        Raises ConfigError, OSError or StorageError if the node cannot start. `on_recovered` is
        called when the data directory has been read: from then on nothing blocks the loop. With
        `is_wanted` the recovery does not block the loop either. It ends with NotWantedError as soon
        as `is_wanted` returns False.
        """
        loop = asyncio.get_running_loop()
        self._certificates = _certificates(self.settings)
        self.turns = TurnRunner(self.broker, self._clock, loop)
        self.watch = LoopWatch(loop, lambda: int(self.broker.turn.number))
        self.turns.watch = self.watch
        self._events = NodeEvents(self.front, self.turns)
        limit_bytes = memory_high_bytes(self.settings.memory_high, machine_bytes())
        self.memory_limit_bytes = limit_bytes
        self.front.limits.unfinished_total_max = int(limit_bytes * UNFINISHED_SHARE)
        self._memory = MemoryAlarm(self._held_bytes, limit_bytes, loop, self._events.on_memory)
        self.watch.on_probe = self._memory.probe
        self.amqp = AmqpServer(self.front, loop, self.turns, self._memory.note_received)
        if self._certificates is not None:
            self.amqp.take_certificates(self._certificates.name_rule)
        self._events.amqp = self.amqp
        self.view = self._make_view()
        self.front.limits.sockets_end = self.view.machine().amqp_sockets_end()
        if self._store is not None:
            if is_wanted is None:
                found = self._store.open(
                    loop,
                    end_turn=self._run_empty_turn,
                    on_alarm=self._events.on_disk,
                    file_bytes=self.log_file_bytes,
                    reserve_bytes=self.reserve_bytes,
                    free_min_bytes=self.settings.disk_free_min,
                )
            else:
                found = await self._recover_in_steps(self._store, is_wanted)
            self.recovered_facts = {"messages": found.messages, "log_files": len(found.files)}
            is_long = sum(found.files.values()) >= FILE_BYTES
            if self._replication is None and (fault := self.view.clock_fault()):
                log.warning("%s", fault)
            del found  # it holds the place of each message in the log
            if is_long:
                give_back_memory()
            if self._replication is not None:
                self._gate = CommitGate(
                    self.front, self._store.block_to_await, self._store.wait_for_commit
                )
                self._store.on_answered = self._gate.on_answered
                self.turns.add_flusher(self._gate.flush)
            else:
                self._sync_watch.start()
            self.turns.add_flusher(self._store.flush)
        if on_recovered is not None:
            on_recovered()
        self.turns.add_flusher(self.amqp.flush)
        self._clock_watch.start()
        if self._span_exporter is not None:
            self.turns.add_flusher(self._span_exporter.flush)
        self._load_users()
        await self._take_tokens()
        self.turns.begin()
        pausing.load_pauses(self.broker.register, self.broker.slots.queues)
        self.view.leases.load()
        self.turns.on_pulse()  # timers that became due before the start run before any new input
        if self._listens:
            self._listen_amqp()
        load_shovels(self.view)
        self.view.federation.load()
        await self.jobs.start()
        if self._serves_http:
            self._start_http()

    async def _recover_in_steps(
        self, store: Store, is_wanted: Callable[[], bool]
    ) -> RecoveryResult:
        """Recover with other work of the loop between the steps. Raises NotWantedError."""
        recovery = store.prepare(
            asyncio.get_running_loop(),
            file_bytes=self.log_file_bytes,
            reserve_bytes=self.reserve_bytes,
            free_min_bytes=self.settings.disk_free_min,
            replication=self._replication,
        )
        try:
            while recovery.do_step():
                await asyncio.sleep(0)
                if not is_wanted():
                    raise NotWantedError("another node leads")
        except BaseException:
            store.drop()
            if self._span_exporter is not None:
                await asyncio.to_thread(self._span_exporter.stop)
            raise
        store.begin(recovery.found, end_turn=self._run_empty_turn, on_alarm=self._events.on_disk)
        return recovery.found

    def _make_view(self) -> HttpNodeView:
        """Make the view of the node, and the parts that are used through it."""
        sync_barrier = self._sync_barrier = SyncBarrier(self.broker, self.turns, self._store)
        view = HttpNodeView(
            settings=self.settings,
            clock=self._clock,
            started_ms=self._started_ms,
            memory_limit_bytes=self.memory_limit_bytes,
            broker=self.broker,
            directory=self.directory,
            definitions=self.definitions,
            front=self.front,
            amqp=self.amqp,
            turns=self.turns,
            store=self._store,
            sync_barrier=sync_barrier,
            sync_watch=self._sync_watch,
            certificates=self._certificates,
            bulk_reads=self.bulk_reads,
            held_bytes=self._held_bytes,
            background_faults=self._background_faults,
        )
        view.metrics = Telemetry(
            view, self.front.alarms, self.watch.lags, self.maybe_log, self._span_exporter
        )
        view.backups = NodeBackups(
            self.settings.node,
            self.broker,
            self.turns,
            self._store,
            sync_barrier,
            view.in_flight,
            self._events.no_alarm,
        )
        view.tasks = Tasks(
            self.broker,
            now_ms=self._clock.now_ms,
            turn=view.turn,
            synced=view.synced,
            alarms=view.alarms,
            in_flight=view.in_flight,
        )
        view.leases = ReaderLeases(self.broker, turn=view.turn, synced=view.synced)
        local_node = make_local_node(view, self._events, _token)
        view.shovels = make_shovels(view, self._events, local_node)
        view.federation = make_federation(view, self._events, local_node, self.turns)
        folder = self._store.disk.folder if self._store is not None else None
        self.jobs = view.jobs = NodeJobs(view, folder)
        return view

    def _listen_amqp(self) -> None:
        settings = self.settings
        bound = self.view.bound
        self.amqp.trust_proxies(Networks(settings.amqp_trusted_proxies))
        with naming("host", settings.host, "amqp_port", settings.amqp_port):
            self.amqp_address = self.amqp.listen(settings.host, settings.amqp_port)
        bound.append(Listener("amqp", *self.amqp_address))
        certificates = self._certificates
        if certificates is not None:
            self._reloads.append(certificates.reload)
            self.background.watch(certificates)
        if certificates is not None and settings.amqps_port is not None:
            with naming("host", settings.host, "amqps_port", settings.amqps_port):
                self.amqps_address = self.amqp.listen(
                    settings.host, settings.amqps_port, certificates.amqp
                )
            bound.append(Listener("amqp/ssl", *self.amqps_address))

    def _listen_http(self, http: HttpFront) -> None:
        settings = self.settings
        bound = self.view.bound
        with naming("host", settings.host, "http_port", settings.http_port):
            self.http_address = http.listen(settings.host, settings.http_port)
        bound.append(Listener("http", *self.http_address))
        if self._certificates is not None and settings.https_port is not None:
            with naming("host", settings.host, "https_port", settings.https_port):
                self.https_address = http.listen(
                    settings.host,
                    settings.https_port,
                    self._certificates.http,
                    settings.handshake_timeout_ms / 1000,
                )
            bound.append(Listener("https", *self.https_address))

    def _start_http(self) -> None:
        http = self.http = HttpFront(self.view)
        if self._listens:
            self._listen_http(http)
        task = asyncio.get_running_loop().create_task(http.run(), name="http")
        task.add_done_callback(self.background.note_end)
        self._tasks.add(task)

    def reload(self) -> None:
        """Read the certificates and the keys of tokens again."""
        for reload in self._reloads:
            reload()

    def _load_users(self) -> None:
        directory = self.directory
        self.turns.begin()
        directory.load(self.settings.default_user, str(self.settings.default_pass))
        if self.settings.load_definitions:
            from leveret.definitions.boot import load_definitions  # late: few starts need it

            load_definitions(self.settings.load_definitions, self.definitions, directory)
        if self._replication is not None:
            self.definitions.keep_cluster_name()
        self.turns.end()
        self._on_global_parameter(CLUSTER_NAME)
        self.definitions.parameters.on_global_change.append(self._on_global_parameter)
        if not is_loopback(self.settings.host) and not directory.has_own_password():
            raise ConfigError(NO_PASSWORD.format(host=self.settings.host))
        directory.on_change = self._on_access_changed
        directory.on_gone = self._on_user_gone
        directory.on_login = self._events.on_login
        self._login_thread = LoginThread(self.turns, asyncio.get_running_loop())
        directory.password_verifier.run_in_thread = self._login_thread.run

    def _on_global_parameter(self, name: str) -> None:
        """Tell clients the name of the cluster."""
        if name == CLUSTER_NAME:
            self.front.server_properties["cluster_name"] = self.definitions.cluster_name

    def _on_access_changed(self, user: str) -> None:
        self.amqp.access_changed(user)
        self.view.shovels.on_access_changed(user)
        self.view.federation.on_access_changed(user)

    def _on_user_gone(self, user: str) -> None:
        self.definitions.parameters.forget_owner(user)
        self.amqp.user_gone(user)

    async def _take_tokens(self) -> None:
        """Accept tokens as logins, if the settings configure them."""
        if not self.settings.oauth2_resource_server_id:
            return
        from leveret.runtime.oauth2 import TokenLogins  # late: its imports take long

        logins = TokenLogins(self.settings, self.directory, self._clock.now_ms)
        self.background.watch(logins)
        await logins.start()
        self.front.authenticator = logins.authenticator
        self._reloads.append(logins.reload)
        self._key_refresher = asyncio.get_running_loop().create_task(logins.run(), name="keys")
        self._key_refresher.add_done_callback(self.background.note_end)

    async def stop(self) -> None:
        """Answer pending requests, close all connections and stop all parts."""
        await self.jobs.stop()
        if self.http is not None:
            self.http.stop()
        await self.view.shovels.stop()
        await self.view.federation.stop()
        await self.view.tasks.stop()
        if self._key_refresher is not None:
            self._key_refresher.cancel()
        await self.amqp.stop(DRAIN_S)
        await self.bulk_reads.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._login_thread.stop()  # after the fronts, which use it
        self._memory.stop()
        self.turns.stop()
        self.watch.stop()
        self._clock_watch.stop()
        self._sync_watch.stop()
        if self._store is not None:
            self._store.close()
        if self._span_exporter is not None:
            await asyncio.to_thread(self._span_exporter.stop)

    async def abandon(self) -> None:
        """Stop because another node leads. Clients are told only about committed changes."""
        if self._gate is not None:
            self.turns.remove_flusher(self._gate.flush)
        self._sync_barrier.lose_lead()
        for connection in self.amqp.protocols:
            connection.drop_output()
        await self.stop()

    def replicated_log(self) -> ReplicatedLog:
        """Return the log of a leader."""
        assert self._store is not None
        assert self._store.replicated is not None
        return self._store.replicated

    def on_unwritable(self, callback: Callable[[OSError], None]) -> None:
        """Call `callback` if the log fails for good, as after a failed sync."""
        assert self._store is not None
        self._store.on_unwritable = callback

    async def wait_for_commit(self) -> None:
        """Return when everything so far is committed, however long that takes."""
        await self._sync_barrier.wait_long()

    def _held_bytes(self) -> int:
        """Return the memory of messages in queues and of the buffers of connections."""
        total = held_bytes(self.broker) + self.amqp.buffered_bytes()
        return total + (self.http.buffered_bytes() if self.http is not None else 0)

    def maybe_log(self) -> Log | None:
        """Return the log; None if nothing is stored."""
        return self._store.log if self._store is not None else None

    def _background_faults(self) -> list[str]:
        return [*self.background.texts(), *self.jobs.report().ended]

    def _run_empty_turn(self) -> None:
        """Send the confirms and answers that waited for a sync of the log."""
        self.turns.begin()
        self.turns.end()


def _certificates(settings: Settings) -> Certificates | None:
    if settings.amqps_port is None and settings.https_port is None:
        return None
    return Certificates(settings)


def _limits(settings: Settings) -> ConnectionLimits:
    limits = ConnectionLimits()
    limits.channel_max = settings.channel_max
    limits.frame_max = settings.frame_max
    limits.heartbeat_s = settings.heartbeat_s
    limits.handshake_ms = settings.handshake_timeout_ms
    limits.unopened_max = settings.unopened_per_address_max
    limits.message_bytes_max = settings.message_bytes_max
    limits.unfinished_bytes_max = 2 * settings.message_bytes_max
    limits.consumer_max_per_channel = settings.consumer_max_per_channel
    limits.transaction_steps_max = settings.transaction_steps_max
    limits.consumer_timeout_ms = settings.consumer_timeout_ms
    return limits


def _server_properties(node: str) -> dict[str, object]:
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    return {
        "product": PRODUCT,
        "version": PRODUCT_VERSION,
        "platform": f"Leveret {__version__} on {python}",
        "information": "Leveret speaks AMQP 0-9-1 as RabbitMQ does",
        "copyright": "",
        "cluster_name": node,
    }


def _token() -> str:
    return secrets.token_urlsafe(16)
