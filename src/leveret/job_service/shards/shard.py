"""One PostgreSQL database: its connections, their deadlines, and the breaker.

While a shard is known to be down, every call to it raises JobsUnavailableError with its name at
once. A probe brings it back when it answers again, is migrated and knows of the local log. A call
that loses its connection or exceeds its deadline opens the breaker. Its connection is closed, since
its state is unknown.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from leveret.errors import JobsError, JobsUnavailableError
from leveret.job_service.shards.migration import migrate
from leveret.job_service.shards.settings import ShardsSettings
from leveret.job_service.shards.sql.loader import TOPIC_STOPPED

Answer = TypeVar("Answer")
Work = Callable[[Any], Awaitable[Answer]]

RETRIES: Final = 3  # of a transaction that PostgreSQL ended because of a conflict
# The planner must not choose a plan for an empty table and keep it when the table is full.
SERVER_SETTINGS: Final = {
    "application_name": "leveret jobs",
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "jit": "off",
}
_CONFLICT_ERRORS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_DOWN_ERRORS: Final = (
    OSError,
    EOFError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # also: starting, shutting down
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
)

log = logging.getLogger(__name__)


class TopicStoppedError(JobsError):
    """The topic is being moved, or is on another shard now."""


class Shard:
    """One database of the store."""

    def __init__(self, index: int, dsn: str, settings: ShardsSettings) -> None:
        self.index: Final = index
        self._dsn = dsn
        self._settings = settings
        self.name: Final = f"shard {index} ({_shown_address(dsn)})"
        self.is_up = False
        self._is_migrated = False
        self._free: list[Any] = []
        self._room = asyncio.Semaphore(settings.connections_max)
        self.on_up: Callable[[Any], Awaitable[None]] | None = None  # with a fresh connection

    def require(self) -> None:
        """Raise unless the shard is known to answer."""
        if not self.is_up:
            raise JobsUnavailableError(f"{self.name} does not answer")

    async def fetch(self, sql: str, *arguments: object) -> list[Any]:
        """Return the rows of one statement, which is a transaction of its own."""

        async def work(connection: Any) -> list[Any]:
            rows: list[Any] = await connection.fetch(sql, *arguments)
            return rows

        return await self.run(work)

    async def run(self, work: Work[Answer]) -> Answer:
        """Do work on a connection within the deadline; try again after a conflict."""
        for _ in range(RETRIES):
            try:
                return await self._run_once(work)
            except _CONFLICT_ERRORS as error:
                log.info("%s ended a transaction, it is tried again: %s", self.name, error)
        raise JobsUnavailableError(f"{self.name} is too busy with conflicting transactions")

    async def _run_once(self, work: Work[Answer]) -> Answer:
        self.require()
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                async with self._room:
                    return await self._with_connection(work)
        except _DOWN_ERRORS as error:
            self._open_breaker(error)
            raise JobsUnavailableError(f"{self.name} does not answer: {_reason(error)}") from error
        except _CONFLICT_ERRORS:
            raise
        except asyncpg.PostgresError as error:
            if error.sqlstate == TOPIC_STOPPED:
                raise TopicStoppedError(str(error)) from error
            # The shard answers, but is read-only or lacks a permission: other calls may work.
            log.warning("%s refuses a statement: %s", self.name, error)
            raise JobsUnavailableError(f"{self.name} refuses: {error}") from error

    async def _with_connection(self, work: Work[Answer]) -> Answer:
        connection = self._free.pop() if self._free else await self._connect()
        try:
            answer = await work(connection)
        except asyncpg.PostgresError as error:
            if isinstance(error, _DOWN_ERRORS):
                connection.terminate()
            else:
                self._free.append(connection)
            raise
        except BaseException:
            connection.terminate()
            raise
        self._free.append(connection)
        return answer

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self._dsn, server_settings=SERVER_SETTINGS, timeout=self._settings.deadline_s
        )

    def _open_breaker(self, error: BaseException) -> None:
        if self.is_up:
            log.warning("%s is down: %s", self.name, _reason(error))
        self.is_up = False
        self._drop_connections()

    def _drop_connections(self) -> None:
        for connection in self._free:
            connection.terminate()
        self._free.clear()

    async def probe(self) -> None:
        """Check the shard; open or close the breaker by the result."""
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                await (self._ask() if self.is_up else self._come_up())
        except (*_DOWN_ERRORS, asyncpg.PostgresError, JobsUnavailableError) as error:
            self._open_breaker(error)

    async def _ask(self) -> None:
        if not self._free:
            return  # all connections are in use: their calls will find out
        connection = self._free.pop()
        try:
            await connection.fetchval("SELECT 1")
        except BaseException:
            connection.terminate()
            raise
        self._free.append(connection)

    async def _come_up(self) -> None:
        connection = await self._connect()
        try:
            if not self._is_migrated:
                await migrate(connection)
                self._is_migrated = True
            if self.on_up is not None:
                await self.on_up(connection)
        except BaseException:
            connection.terminate()
            raise
        self._free.append(connection)
        self.is_up = True
        log.info("%s is up", self.name)

    async def watch(self) -> None:
        """Probe until cancelled."""
        while True:
            await asyncio.sleep(self._settings.probe_s)
            await self.probe()

    def close(self) -> None:
        self.is_up = False
        self._drop_connections()


def _shown_address(dsn: str) -> str:
    """Return the address of a database without its password."""
    parts = urlsplit(dsn)
    return f"{parts.hostname or 'local'}:{parts.port or 5432}{parts.path}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the deadline"
    return str(error) or type(error).__name__
