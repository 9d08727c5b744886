"""One PostgreSQL database: its connections, their deadlines, and the breaker.

While a shard is known to be down, every call to it raises JobsUnavailableError with its name at
once. A probe brings it back when it answers again, is migrated and knows of the local log. A call
that loses its connection or exceeds its deadline opens the breaker. Its connection is closed, since
its state is unknown.

A shard that is in use is probed regularly. A shard that is up and not used is left in peace until a
client's call comes (`note_use`), a statement fails, or the connection with the notifications is
lost. From time to time it is probed anyway. The probes use the connection with the notifications,
because the network may lose it without a word. After a rest, a probe does not wait long for this
connection: a new one shows whether the server or only the connection is silent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from leveret.errors import (
    ConfigError,
    JobsError,
    JobsUnavailableError,
    NewerFormatError,
    system_reason,
)
from leveret.job_service.shards import keepalive
from leveret.job_service.shards.connecting import connect, pooler_error, shown_address
from leveret.job_service.shards.countdown import Deadline
from leveret.job_service.shards.due_times import DueTimes
from leveret.job_service.shards.migration import migrate
from leveret.job_service.shards.server_health import NO_ANSWER, ServerHealth, Time
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.sql.loader import DUE_CHANNEL, READY_CHANNEL, TOPIC_STOPPED
from leveret.job_service.shards.timestamps import to_ms
from leveret.job_service.shards.topic_name import TopicName
from leveret.job_service.shards.transaction import DOWN_ERRORS, leaves_connection, transaction
from leveret.slices import FairLock

Answer = TypeVar("Answer")
Work = Callable[[Any], Awaitable[Answer]]

FULL: Final = "its disk is full"
FULL_KEPT_S: Final = 5.0  # for which a disk counts as full; flushes try again every half second
FRESH_PROBES: Final = 10  # intervals of probes for which the result of one counts
READ_ONLY: Final = "it is read-only, as a standby is"
RETRIES: Final = 3  # of a transaction that PostgreSQL ended because of a conflict
_NO_CONNECTION_ERRORS: Final = (
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
_CONFLICT_ERRORS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

log = logging.getLogger(__name__)


class TopicStoppedError(JobsError):
    """The topic is being moved, or is on another shard now."""


class _StoodStillError(Exception):
    """This node stood still during a call, which PostgreSQL has ended."""


class Shard:
    """One database of the store."""

    def __init__(self, index: int, dsn: str, settings: ShardsSettings, clock: Time) -> None:
        self.index: Final = index
        self._dsn = dsn
        self._settings = settings
        self._clock = clock
        self.health: Final = ServerHealth(
            f"shard {index}", shown_address(dsn), is_skew_measured=not settings.is_time_given
        )
        self.name: Final = self.health.name
        self._is_migrated = False
        self.due: Final = DueTimes()
        self._is_used = True  # by a client's call, since the last probe
        self._probed_s = 0.0  # when the last complete probe began, by the clock of the event loop
        self._probe_wanted = asyncio.Event()
        self._probing = asyncio.Lock()
        self._free: list[Any] = []
        self._used = 0  # connections that do work now
        self._freed = asyncio.Event()  # set when a connection becomes free
        self._room = asyncio.Semaphore(settings.connections_max)
        self.long_reads: Final = FairLock()
        self._full_until_s = 0.0  # loop time until which the disk counts as full
        self.refused_connections = 0  # connections that the server did not allow
        self._connection_refusal = ""  # why it did not allow the last one
        self.on_up: Callable[[Any], Awaitable[None]] | None = None  # with a fresh connection
        self._listener: Any = None  # one of the connections: it gets the notifications
        # Called when a topic of the shard has ready jobs; without a topic, when any of them may.
        self.on_ready: Callable[[TopicName | None], None] = _ignore
        # Checks the stamp of the database. Returns False if it must be checked again later.
        self.check_stamp: Callable[[Any], Awaitable[bool]] | None = None
        self.is_stamped = False
        # Why the database must not be used at all.
        self.refusal: ConfigError | NewerFormatError | None = None

    @property
    def is_up(self) -> bool:
        return self.health.is_up

    def require(self) -> None:
        """Raise unless the shard is known to answer."""
        self.health.require()

    @property
    def is_listening(self) -> bool:
        """Return whether the shard notifies this node of ready jobs."""
        return self._listener is not None and not self._listener.is_closed()

    def note_use(self) -> None:
        """Note a client's call: the shard is probed regularly while such calls come."""
        if not self._is_used:
            self._is_used = True
            self._probe_wanted.set()

    @property
    def is_fresh(self) -> bool:
        """Return whether the shard was probed lately, or is known to be down."""
        if not self.is_up:
            return True
        fresh_s = FRESH_PROBES * self._settings.probe_s
        return asyncio.get_running_loop().time() - self._probed_s <= fresh_s

    async def freshen(self) -> None:
        """Probe the shard unless that was done lately.

        So a call knows the clock of the shard, and whether it answers and takes changes.
        """
        if not self.is_fresh:
            async with self._probing:
                if not self.is_fresh:
                    await self._probe()

    async def fetch(self, sql: str, *arguments: object) -> list[Any]:
        """Return the rows of one statement, which is a transaction of its own."""

        async def work(connection: Any) -> list[Any]:
            rows: list[Any] = await connection.fetch(sql, *arguments)
            return rows

        return await self.run(work)

    async def fetch_within(
        self, most_ms: int, sql: str, *arguments: object, gate: TopicName | None = None
    ) -> list[Any]:
        """Return the rows of a long read. Raise JobsUnavailableError if it takes too long.

        A read that takes too long does not count as a failure of the shard. `gate`: the topic that
        must be on this shard.
        """

        async def work(connection: Any) -> list[Any] | None:
            async with transaction(connection, readonly=True):
                await connection.execute(f"SET LOCAL statement_timeout = {most_ms}")
                await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
                if gate is not None:
                    await connection.execute("SELECT leveret_gate($1, $2)", *gate)
                rows: list[Any] = await connection.fetch(sql, *arguments)
                return rows

        async def try_to(connection: Any) -> list[Any] | None:
            try:
                return await work(connection)
            except asyncpg.QueryCanceledError:
                return None

        found = await self.run(try_to)
        if found is None:
            raise self.health.error(f"has too many jobs to read them in {most_ms} ms")
        return found

    async def run(self, work: Work[Answer]) -> Answer:
        """Do work on a connection within the deadline; try again what was rolled back."""
        for _ in range(RETRIES):
            try:
                return await self._run_once(work)
            except _CONFLICT_ERRORS as error:
                log.info("%s ended a transaction, which is tried again: %s", self.name, error)
            except _StoodStillError:
                log.info("%s is asked again: this node stood still meanwhile", self.name)
        raise self.health.error("is too busy with conflicting transactions")

    async def _run_once(self, work: Work[Answer]) -> Answer:
        self.require()
        deadline = Deadline(self._settings.deadline_s)
        try:
            async with deadline, self._room:
                return await self._with_connection(work)
        except DOWN_ERRORS as error:
            # PostgreSQL has a deadline of its own, and cannot know why the node did not go on.
            if isinstance(error, asyncpg.QueryCanceledError) and deadline.stood_still:
                raise _StoodStillError from error
            self._open_breaker(error)
            raise self.health.error(NO_ANSWER, _reason(error)) from error
        except _CONFLICT_ERRORS:
            raise
        except asyncpg.PostgresError as error:
            if error.sqlstate == TOPIC_STOPPED:
                raise TopicStoppedError(str(error)) from error
            # The shard answers, but is full, read-only or lacks a permission: other calls may work.
            if isinstance(error, asyncpg.DiskFullError):
                self._full_until_s = asyncio.get_running_loop().time() + FULL_KEPT_S
                self._note_write_refusal(FULL)
            elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                self._note_write_refusal(READ_ONLY)
            else:
                log.warning("%s refuses a statement: %s", self.name, error)
            raise self.health.error("refuses", _reason(error)) from error

    def _note_write_refusal(self, cause: str) -> None:
        """Note why a statement was refused. Probes find out when that is over."""
        self.health.note_write_refusal(cause)
        self._probe_wanted.set()

    async def _with_connection(self, work: Work[Answer], given: Any = None) -> Answer:
        """Do work on a connection that was free, on any by default; make it free again."""
        connection = given or await self._take_connection()
        self._used += 1
        is_kept = False
        try:
            answer = await work(connection)
            is_kept = True
        except asyncpg.PostgresError as error:
            is_kept = leaves_connection(error)
            raise
        finally:
            self._used -= 1
            if is_kept:
                self._put_back(connection)
            else:
                connection.terminate()
            self._freed.set()
        return answer

    async def _take_connection(self) -> Any:
        """Return a free connection, or a new one.

        A server that allows no more connections, or no login by this password any more, still
        serves the open ones: wait for one of them.
        """
        while (connection := self._maybe_free()) is None:
            try:
                connection = await self._connect()
                self._connection_refusal = ""
                return connection
            except _NO_CONNECTION_ERRORS as error:
                if not self._used and not self._free:
                    raise
                self.refused_connections += 1
                self._note_refused_connection(str(error))
                if not self._free:
                    self._freed.clear()
                    await self._freed.wait()
        return connection

    def _note_refused_connection(self, cause: str) -> None:
        """Log each new cause: at the next start of the node nothing may be left of the shard."""
        level = logging.INFO if cause == self._connection_refusal else logging.WARNING
        log.log(level, "%s refuses a further connection: %s", self.name, cause)
        self._connection_refusal = cause

    def _maybe_free(self) -> Any | None:
        """Return a free connection that the server has not closed meanwhile."""
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    def _maybe_listener(self) -> Any | None:
        """Return the connection with the notifications if it is free."""
        if not self.is_listening or self._listener not in self._free:
            return None
        self._free.remove(self._listener)
        return self._listener

    def _put_back(self, connection: Any) -> None:
        """Make a connection free. The listener is used last: a long statement delays its news."""
        self._free.insert(0 if connection is self._listener else len(self._free), connection)

    async def _connect(self) -> Any:
        return await connect(self._dsn, self.name, self._settings.deadline_s)

    def _open_breaker(self, error: BaseException) -> None:
        self.health.on_down(_reason(error))
        self._probe_wanted.set()
        self._drop_connections()
        self.on_ready(None)  # waiting dequeues end with the cause

    def _drop_connections(self) -> None:
        for connection in self._free:
            connection.terminate()
        self._free.clear()

    async def probe(self) -> None:
        """Check the shard; open or close the breaker by the result."""
        async with self._probing:
            await self._probe()

    async def _probe(self) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            async with Deadline(self._settings.deadline_s):
                await (self._ask() if self.is_up else self._come_up())
        except (*DOWN_ERRORS, asyncpg.PostgresError, JobsUnavailableError) as error:
            self._open_breaker(error)
        except (ConfigError, NewerFormatError) as error:
            self.refusal = error
            self._open_breaker(error)
        self._probed_s = began_s  # set at the end: calls that come meanwhile wait for the result

    async def _ask(self) -> None:
        """Check the shard on an open connection, on that with the notifications if it is free.

        If all are in use, it is checked on a further one: the clocks must be known before any call.
        """
        loop = asyncio.get_running_loop()
        has_rested = loop.time() - self._probed_s > keepalive.REST_S
        check = loop.create_task(self._with_connection(self._check, self._maybe_listener()))
        check.add_done_callback(_retrieve)
        try:
            if has_rested:
                await asyncio.wait([check], timeout=keepalive.SIGN_S)
                if not check.done() and await self._is_checked_anew(check):
                    return
            await check
        finally:
            check.cancel()

    async def _check(self, connection: Any) -> None:
        await self._measure(connection)
        await self._check_stamp(connection)
        if not self.is_listening:
            await self._listen(connection)

    async def _is_checked_anew(self, check: "asyncio.Task[None]") -> bool:
        """Check the shard on a new connection, unless an old one answers first.

        Return whether it has replaced the old connections, which the network has lost.
        """
        renewal = asyncio.get_running_loop().create_task(self._renew_connections())
        renewal.add_done_callback(_retrieve)
        try:
            await asyncio.wait([check, renewal], return_when=asyncio.FIRST_COMPLETED)
            return not check.done() and renewal.exception() is None
        finally:
            renewal.cancel()

    async def _renew_connections(self) -> None:
        """Check the shard on a new connection; close those that have rested."""
        connection = await self._connect()
        try:
            await self._measure(connection)
            await self._check_stamp(connection)
            log.info("connections to %s are silent after a rest, and are replaced", self.name)
            self._drop_connections()
            await self._listen(connection)
        except BaseException:
            connection.terminate()
            raise
        self._put_back(connection)

    async def _come_up(self) -> None:
        connection = await self._connect()
        try:
            await self._measure(connection)
            if await connection.fetchval("SHOW enable_seqscan") != "off":
                raise pooler_error(self.name)
            if not self._is_migrated:
                await migrate(connection)
                self._is_migrated = True
            await self._check_stamp(connection)
            if self.on_up is not None:
                await self.on_up(connection)
            await self._listen(connection)
        except BaseException:
            connection.terminate()
            raise
        self._put_back(connection)
        self.health.on_up()

    async def _listen(self, connection: Any) -> None:
        """Get notifications of ready jobs by a connection; it still serves calls."""
        await connection.add_listener(READY_CHANNEL, self._on_notification)
        await connection.add_listener(DUE_CHANNEL, self._on_due)
        connection.add_termination_listener(self._on_listener_lost)
        self._listener = connection
        self.due.look_soon()
        self.on_ready(None)  # for notifications that were missed before

    def _on_listener_lost(self, _connection: Any) -> None:
        self._probe_wanted.set()
        self.due.look_soon()
        self.on_ready(None)  # waiting dequeues look by themselves until there is a new listener

    def _on_due(self, _connection: Any, _pid: int, _channel: str, text: str) -> None:
        try:
            self.due.hear(int(text) / 1000)
        except (ValueError, OverflowError):
            log.warning("%s sent a notification that names no time: %.200s", self.name, text)

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, text: str) -> None:
        try:
            namespace, topic = msgspec.json.decode(text, type=tuple[str, str])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            log.warning("%s sent a notification that names no topic: %.200s", self.name, text)
            return
        self.on_ready((namespace, topic))

    async def _check_stamp(self, connection: Any) -> None:
        if not self.is_stamped and self.check_stamp is not None:
            self.is_stamped = await self.check_stamp(connection)
        self.refusal = None

    async def _measure(self, connection: Any) -> None:
        """Read the clock of the shard, and whether it takes changes.

        The time in an answer that a node reads late, because it stood still, would be wrong by more
        than PREFETCH_MARGIN_MS. So it is asked again.
        """
        loop = asyncio.get_running_loop()
        while True:
            asked_s, asked_ms = loop.time(), self._clock.now_ms()
            at, is_read_only = await connection.fetchrow(
                "SELECT clock_timestamp(), current_setting('transaction_read_only')::BOOLEAN"
            )
            if loop.time() - asked_s <= self._settings.deadline_s:
                break
        self.health.note_time(asked_ms, self._clock.now_ms(), to_ms(at))
        is_full = loop.time() < self._full_until_s
        self.health.note_write_refusal(READ_ONLY if is_read_only else FULL if is_full else "")

    async def watch(self) -> None:
        """Probe while the shard is down or in use, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.probe_s)
            if self._may_rest():
                await self._rest()
            self._probe_wanted.clear()
            self._is_used = False
            await self.probe()

    async def _rest(self) -> None:
        """Wait for a reason to probe, or until a probe is due anyway."""
        try:
            async with asyncio.timeout(self._settings.idle_s):
                await self._probe_wanted.wait()
        except TimeoutError:
            pass

    def _may_rest(self) -> bool:
        if self._is_used or not (self.is_up and self.is_listening and self.is_stamped):
            return False
        return not (self.health.write_refusal or self.health.skew_refusal())

    def close(self) -> None:
        self.health.is_up = False
        self._drop_connections()


def _ignore(topic: TopicName | None) -> None:
    pass


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Retrieve the error of a task that may be given up, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _reason(error: BaseException) -> str:
    if isinstance(error, (TimeoutError, asyncpg.QueryCanceledError)):
        return "no answer within the deadline"
    if isinstance(error, asyncpg.InternalClientError):
        # So asyncpg fails if the server has sent its last words, but not yet the end of the stream.
        return "the server ended the connection"
    if isinstance(error, OSError):
        return system_reason(error)
    return str(error).partition("\n")[0] or type(error).__name__  # without details and hints
