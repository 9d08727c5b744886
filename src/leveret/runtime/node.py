"""A node: one broker with its fronts on one event loop. This module wires and does nothing else."""

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence

from leveret import __version__
from leveret.amqp.link import Front, Limits
from leveret.amqp.server import AmqpServer
from leveret.arrow.reads import BulkReads
from leveret.auth import Authority, Credentials, Directory, is_loopback
from leveret.auth.throttle import Throttle
from leveret.clock import Clock
from leveret.config.settings import Settings, memory_high_bytes
from leveret.definitions import Book
from leveret.engine.broker import Broker
from leveret.engine.history.tracing import TracedMessages
from leveret.engine.message import Message
from leveret.engine.turns.events import facts_of, tell
from leveret.engine.turns.session import Session
from leveret.engine.vhosts import pausing
from leveret.errors import ConfigError
from leveret.http.framework.node import Listener, Machine
from leveret.http.transport.front import HttpFront
from leveret.leases import Leases
from leveret.runtime import machine
from leveret.runtime.backups import Backups
from leveret.runtime.certificates import Certificates
from leveret.runtime.connection_log import log_event
from leveret.runtime.connections import Connections
from leveret.runtime.jobs import Jobs
from leveret.runtime.login_thread import LoginThread
from leveret.runtime.loop_watch import LoopWatch
from leveret.runtime.memory import REASON, MemoryWatch, held_bytes, machine_bytes
from leveret.runtime.shovels import load_shovels, make_shovels
from leveret.runtime.sync_barrier import Syncing
from leveret.runtime.telemetry import Telemetry
from leveret.runtime.tracing import Tracer, otlp_exporter
from leveret.runtime.turns import Turns
from leveret.storage.disk import Disk
from leveret.storage.log import Log
from leveret.storage.recovery import Recovered
from leveret.storage.store import DISK_FULL, Store
from leveret.tasks import Tasks

log = logging.getLogger(__name__)

# What clients are told they talk to. Client libraries choose behaviour by product and version, so
# these are RabbitMQ's whose behaviour is the same; `platform` and `information` tell the rest.
PRODUCT = "RabbitMQ"
PRODUCT_VERSION = "4.3.0"

DRAIN_S = 2.0
ALARM_PAUSE_S = 0.25  # between two looks at an alarm, for parts of the node that publish
NO_PASSWORD = (
    "host is {host}, which other machines can reach, and nobody has a password but the public"
    " guest/guest: give the default user one with --default-pass or LEVERET_DEFAULT_PASS"
)
NO_STORE = "none"  # the durability of a node that has no data directory


class Node:
    """One running broker."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        serves_http: bool = True,
        disk: Disk | None = None,
    ) -> None:
        self.settings = settings
        self.broker = Broker(secrets.randbits(62))
        self.broker.parks = settings.park_over_limit
        self.broker.turn.node_name = settings.node
        self.broker.begin_turn(clock.now_ms())
        self.directory = Directory(
            self.broker.register, clock.now_ms, Throttle(settings.login_failures_max)
        )
        self.directory.quotas.connections_max = settings.connections_max
        self.book = Book(self.broker, settings.node, PRODUCT_VERSION)
        self.front = Front(self.broker, self.directory, _limits(settings), _token)
        self.front.server_properties = _server_properties(settings.node)
        self.amqp_address = ("", 0)
        self.http_address = ("", 0)
        # Where clients come in by TLS, if they can
        self.amqps_address: tuple[str, int] | None = None
        self.https_address: tuple[str, int] | None = None
        self._certificates: Certificates | None = None
        self._reloads: list[Callable[[], object]] = []  # of files that may change
        self._key_care: asyncio.Task[None] | None = None
        self.recovered: Recovered | None = None  # what was found on disk
        self._store: Store | None = None
        if disk is not None:
            self._store = Store(disk, self.broker, settings.durability)
        self.bulk_reads = BulkReads(disk.folder if disk is not None else None)
        self.front.on_event = log_event
        self._tracer: Tracer | None = None
        if settings.otel_endpoint:
            traced_messages = TracedMessages()
            self._tracer = Tracer(
                traced_messages, otlp_exporter(settings.otel_endpoint, settings.node)
            )
            self.broker.turn.traced_messages = traced_messages
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._serves_http = serves_http
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, on_recovered: Callable[[], None] | None = None) -> None:
        """Listen. Raises OSError where an address cannot be used, ConfigError where none may be.

        `on_recovered` is told when all that is on disk was read: the loop is not blocked from then.
        """
        loop = asyncio.get_running_loop()
        self._certificates = _certificates(self.settings)
        self.turns = Turns(self.broker, self._clock, loop)
        self.watch = LoopWatch(loop, lambda: int(self.broker.turn.number))
        self.turns.watch = self.watch
        self.metrics = Telemetry(self, self.front.alarms, self.watch.lags, self._log, self._tracer)
        limit_bytes = memory_high_bytes(self.settings.memory_high, machine_bytes())
        self.memory_limit_bytes = limit_bytes
        self._memory = MemoryWatch(self.broker, limit_bytes, loop, self._on_memory)
        self.front.limits.sockets_end = self.machine().amqp_sockets_end()
        self.amqp = AmqpServer(self.front, loop, self.turns, self._memory.note_received)
        self.connections = Connections(self.amqp)
        if self._store is not None:
            self.recovered = self._store.open(
                loop,
                end_turn=self._synced,
                on_alarm=self._on_disk,
                free_min_bytes=self.settings.disk_free_min,
            )
            self.turns.add_flusher(self._store.flush)
        if on_recovered is not None:
            on_recovered()
        self.turns.add_flusher(self.amqp.flush)
        if self._tracer is not None:
            self.turns.add_flusher(self._tracer.flush)
        self._syncing = Syncing(self.broker, self.turns, self._store)
        self.backups = Backups(
            self.settings.node,
            self.broker,
            self.turns,
            self._store,
            self._syncing,
            self._in_flight,
        )
        self.tasks = Tasks(
            self.broker,
            now_ms=self._clock.now_ms,
            turn=self.turn,
            synced=self.synced,
            alarms=self.alarms,
            in_flight=self._in_flight,
        )
        self.leases = Leases(self.broker, turn=self.turn, synced=self.synced)
        self.shovels = make_shovels(self, self._clock)
        self.jobs = Jobs(self, self._store.disk.folder if self._store is not None else None)
        self._load_users()
        await self._take_tokens()
        self.turns.begin()
        pausing.load(self.broker.register, self.broker.slots.queues)
        self.leases.load()
        self.turns.on_pulse()  # what became due meanwhile comes before anything new
        await self._listen_amqp()
        load_shovels(self)
        await self.jobs.start()
        if self._serves_http:
            self._http = HttpFront(self.settings.host, self.settings.http_port, self)
            self.http_address = self._http.bind()
            if self._certificates is not None and self.settings.https_port is not None:
                self.https_address = self._http.bind_secured(
                    self.settings.https_port,
                    self._certificates.http,
                    self.settings.handshake_timeout_ms / 1000,
                )
            task = loop.create_task(self._http.run(), name="http")
            task.add_done_callback(_log_failure)
            self._tasks.add(task)

    async def _listen_amqp(self) -> None:
        settings = self.settings
        self.amqp_address = await self.amqp.listen(settings.host, settings.amqp_port)
        certificates = self._certificates
        if certificates is not None:
            self._reloads.append(certificates.reload)
        if certificates is not None and settings.amqps_port is not None:
            self.amqp.take_certificates(certificates.name_rule)
            self.amqps_address = await self.amqp.listen(
                settings.host, settings.amqps_port, certificates.amqp
            )

    def reload(self) -> None:
        """Read again what may change while the node runs: certificates and keys."""
        for reload in self._reloads:
            reload()

    def _load_users(self) -> None:
        directory = self.directory
        self.turns.begin()
        directory.load(self.settings.default_user, str(self.settings.default_pass))
        if self.settings.load_definitions:
            from leveret.definitions.boot import load_definitions  # late: few starts need it

            load_definitions(self.settings.load_definitions, self.book, directory)
        self.turns.end()
        if not is_loopback(self.settings.host) and not directory.has_own_password():
            raise ConfigError(NO_PASSWORD.format(host=self.settings.host))
        directory.on_change = self.amqp.access_changed
        directory.on_gone = self.amqp.user_gone
        directory.on_login = self._on_login
        self._apart = LoginThread(self.turns, asyncio.get_running_loop())
        directory.verification.apart = self._apart.run

    async def _take_tokens(self) -> None:
        """Where tokens are configured, take them as logins too."""
        if not self.settings.oauth2_resource_server_id:
            return
        from leveret.runtime.oauth2 import TokenLogins  # imports much that few need

        logins = TokenLogins(self.settings, self.directory, self._clock.now_ms)
        await logins.start()
        self.front.authority = logins.authority
        self._reloads.append(logins.reload)
        self._key_care = asyncio.get_running_loop().create_task(logins.run(), name="keys")
        self._key_care.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Say goodbye to every peer, answer what was asked, and end."""
        await self.jobs.stop()
        if self._serves_http:
            self._http.stop()
        await self.shovels.stop()
        await self.tasks.stop()
        if self._key_care is not None:
            self._key_care.cancel()
        await self.amqp.stop(DRAIN_S)
        await self.bulk_reads.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._apart.stop()  # after all who may ask it
        self._memory.stop()
        self.turns.stop()
        self.watch.stop()
        if self._store is not None:
            self._store.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.stop)

    # What the HTTP front may ask

    @property
    def node_name(self) -> str:
        return self.settings.node

    @property
    def durability(self) -> str:
        return self._store.durability if self._store is not None else NO_STORE

    @property
    def product_version(self) -> str:
        return PRODUCT_VERSION

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def machine(self) -> Machine:
        folder = self._store.disk.folder if self._store is not None else None
        return Machine(
            pid=os.getpid(),
            started_ms=self._started_ms,
            memory_used_bytes=machine.memory_used_bytes(),
            memory_held_bytes=held_bytes(self.broker),
            memory_limit_bytes=self.memory_limit_bytes,
            disk_free_bytes=machine.disk_free_bytes(folder),
            disk_limit_bytes=self.settings.disk_free_min,
            descriptors_used=machine.descriptors_used(),
            descriptors_max=machine.descriptors_max(),
            processors=machine.processors(),
            load=machine.load(),
            context_switches=machine.context_switches(),
            data=str(folder) if folder is not None else "",
        )

    def listeners(self) -> Sequence[Listener]:
        found = [Listener("amqp", *self.amqp_address)]
        if self.amqps_address is not None:
            found.append(Listener("amqp/ssl", *self.amqps_address))
        if self._serves_http:
            found.append(Listener("http", *self.http_address))
        if self.https_address is not None:
            found.append(Listener("https", *self.https_address))
        return found

    def certificates(self) -> Sequence[tuple[str, int]]:
        return [] if self._certificates is None else self._certificates.ends()

    def alarms(self) -> Sequence[str]:
        return [f"low on {reason}" for reason in self.front.alarms]

    def sessions(self) -> list[Session]:
        held_here = (self.shovels, self.jobs, self.leases)
        found: list[Session] = [each for holder in held_here for each in holder.sessions()]
        found.extend(c for link in self.amqp.protocols for c in link.channels.values())
        return found

    async def no_alarm(self) -> None:
        """Return when publishers are not blocked."""
        while self.front.alarms:  # noqa: ASYNC110  an alarm is no event, and lasts for long
            await asyncio.sleep(ALARM_PAUSE_S)

    def token(self) -> str:
        """Random characters for a name."""
        return _token()

    def _log(self) -> Log | None:
        return self._store.log if self._store is not None else None

    def _in_flight(self) -> list[Message]:
        """Everything that is delivered and not settled, or settled by a transaction to come."""
        held: list[Message] = []
        for session in self.sessions():
            held.extend(session.unacked.messages())
            held.extend(session.undecided())
        return held

    @property
    def authority(self) -> Authority:
        return self.front.authority

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self.turns.begin()
        try:
            yield
        finally:
            self.turns.end()

    def send_away(self, vhost: str) -> None:
        self.amqp.close_vhost(vhost)

    async def synced(self) -> None:
        await self._syncing.wait()

    def _on_memory(self, is_low: bool) -> None:
        self._set_alarm(REASON, is_low)

    def _on_disk(self, is_full: bool) -> None:
        self._set_alarm(DISK_FULL, is_full)

    def tell(self, key: str, facts: dict[str, object]) -> None:
        """Tell whoever listens at the event exchange; soon, as it may be the middle of a turn."""
        if self.broker.turn.listens:
            asyncio.get_running_loop().call_soon(self._tell, key, facts)

    def _tell(self, key: str, facts: dict[str, object]) -> None:
        with self.turn():
            tell(self.broker.turn, key, facts_of(facts))

    def _on_login(self, credentials: Credentials, succeeded: bool) -> None:
        facts: dict[str, object] = {
            "name": credentials.name,
            "peer_host": credentials.host,
            "protocol": credentials.protocol,
        }
        if not succeeded:
            told = {"user": credentials.name, "peer": credentials.host}
            told["protocol"] = credentials.protocol
            log.warning("login refused", extra={"facts": told})
        self.tell(f"user.authentication.{'success' if succeeded else 'failure'}", facts)

    def _set_alarm(self, reason: str, is_on: bool) -> None:
        self.tell(f"alarm.{'set' if is_on else 'cleared'}", {"resource": reason})
        log.warning("alarm on" if is_on else "alarm off", extra={"facts": {"reason": reason}})
        if is_on:
            self.front.alarms.append(reason)
        else:
            self.front.alarms.remove(reason)
            self.amqp.alarms_changed()

    def _synced(self) -> None:
        """The log is synced up to somewhere: what waited for it goes out."""
        self.turns.begin()
        self.turns.end()


def _log_failure(task: asyncio.Task[None]) -> None:
    """A task that ends by a fault says so at once, not when the node stops."""
    if not task.cancelled() and task.exception() is not None:
        log.error("the task %s failed", task.get_name(), exc_info=task.exception())


def _certificates(settings: Settings) -> Certificates | None:
    if settings.amqps_port is None and settings.https_port is None:
        return None
    return Certificates(settings)


def _limits(settings: Settings) -> Limits:
    limits = Limits()
    limits.channel_max = settings.channel_max
    limits.frame_max = settings.frame_max
    limits.heartbeat_s = settings.heartbeat_s
    limits.handshake_ms = settings.handshake_timeout_ms
    limits.message_bytes_max = settings.message_bytes_max
    limits.unfinished_bytes_max = 2 * settings.message_bytes_max
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
