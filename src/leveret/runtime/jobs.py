"""The jobs service of a node: open its store at the first need, and check its tokens.

Without jobs, nothing of the service is imported. A start opens the store only if there are
schedules, or if the store is on Redis and PostgreSQL.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from leveret.auth import ADMINISTRATOR, JobAccess, User, UserDirectory
from leveret.config.settings import Settings
from leveret.definitions import Definitions
from leveret.engine.broker import Broker
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import ConfigError, JobsError
from leveret.job_service.report import StoreReport, TopicReport
from leveret.runtime.job_tokens import JobTokens
from leveret.runtime.sync_barrier import SyncEnd

STOP_WITHIN_S: Final = 10.0
COUNTS_KEPT_S: Final = 5.0  # shortest time for which the numbers in metrics are kept
COUNTING_SHARE: Final = 20  # counting takes at most a twentieth of the time
TOPICS_MAX: Final = 1_000  # topics in metrics: those with the most jobs
_STATES: Final = ("ready", "scheduled", "leased", "dead")
_COUNTS: Final = ("enqueued", "handed_out", "acked", "failed", "expired")
_AT_START: Final = (
    "job-schedule",
    "job-fair",
)  # kinds of register entries that need the store at the start
_EVERYTHING: Final = ".*"
_DRIVERS: Final = ("asyncpg", "hiredis", "redis")

log = logging.getLogger(__name__)


class JobsHost(Protocol):
    """The parts of the node that the jobs service uses."""

    settings: Settings
    broker: Broker
    definitions: Definitions
    directory: UserDirectory

    @property
    def node_name(self) -> str: ...

    @property
    def clock_moves(self) -> bool: ...

    def now_ms(self) -> int: ...

    def alarms(self) -> Sequence[str]: ...

    def turn(self) -> AbstractContextManager[None]: ...

    async def synced(self) -> None: ...

    def begin_sync(self) -> "asyncio.Future[None]": ...

    def sync_end(self) -> SyncEnd: ...

    def sessions(self) -> list[Session]: ...


class NodeJobs:
    """The jobs service of one node."""

    def __init__(self, host: JobsHost, folder: Path | None) -> None:
        self._host = host
        self._folder = folder
        # A `leveret.job_service.store.Store`. Importing the type would import msgspec at every
        # start.
        self._store: Any = None
        self._opening = asyncio.Lock()
        self._tokens: JobTokens | None = None
        self._topics: list[TopicReport] = []  # counted for the metrics
        self._count_after_s = 0.0  # by the clock of the event loop
        self.has_failed = False  # the service could not stop cleanly

    async def start(self) -> None:
        """Open the store if it has work without a call. Raises ConfigError."""
        settings = self._host.settings
        if settings.jobs_token_secret or settings.jobs_token_key is not None:
            self._own_tokens()  # raises ConfigError for a bad key
        kinds = self._host.broker.register.kinds()
        if settings.jobs_postgres or any(kind in kinds for kind in _AT_START):
            await self.store()

    def maybe_store(self) -> Any:
        """Return the store of jobs; None if no call has opened it."""
        return self._store

    async def store(self) -> Any:
        """Return the store of jobs; the first call opens it."""
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    store = self._open()
                    await store.start()
                    self._store = store
        return self._store

    def _open(self) -> Any:
        settings = self._host.settings
        if settings.jobs_postgres:
            shards = import_shards(settings)
            return shards.open_store(
                redis_url=str(settings.jobs_redis),
                dsns=settings.jobs_postgres.split(),
                data=self._log_folder(),
                clock=self._host,
                random=Random(),
                settings=shards.ShardsSettings(
                    sync=settings.jobs_sync,
                    is_slow_mode=settings.jobs_slow_mode,
                    rate_max=settings.jobs_rate or None,
                    is_time_given=not self._host.clock_moves,
                    secret_digest=self._own_tokens().digest,
                ),
            )
        from leveret.job_service.embedded import EmbeddedStore

        return EmbeddedStore(_EmbeddedHost(self._host), rate=settings.jobs_rate)

    def _log_folder(self) -> Path:
        """Return the folder of the buffer in front of Redis and PostgreSQL."""
        if self._folder is None:
            raise ConfigError("jobs on Redis and PostgreSQL need a data directory")
        return self._folder / "jobs"

    def report(self) -> StoreReport:
        """Return the state of the store without I/O."""
        if self._store is None:
            return StoreReport()
        found: StoreReport = self._store.report()
        return found

    async def full_report(self) -> StoreReport:
        """Return the state of the store with its topics, for metrics.

        Counting jobs costs the shards some work. So the numbers are kept for a time that rises with
        the time of counting.
        """
        found = self.report()
        if self._store is not None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._count_after_s:
                begun_s = loop.time()
                self._topics = await _count_topics(self._store) or self._topics
                took_s = loop.time() - begun_s
                self._count_after_s = loop.time() + max(COUNTS_KEPT_S, took_s * COUNTING_SHARE)
            found.topics = self._topics
        return found

    async def stop(self) -> None:
        """Refuse new calls and store all accepted jobs. Set `has_failed` if that fails."""
        if self._store is None:
            return
        try:
            await self._store.stop(STOP_WITHIN_S)
        except JobsError as fault:
            self.has_failed = True
            text = (
                "not all accepted jobs could be stored: %s: start this node again with the same"
                " data directory"
            )
            log.error(text, fault)

    def sessions(self) -> list[Session]:
        """Return the sessions that hold leased jobs in this node."""
        found: list[Session] = getattr(self._store, "sessions", list)()
        return found

    def access(self, token: str) -> JobAccess:
        """Return the access that a token gives. Raises TokenRefusedError."""
        return self._own_tokens().access(token, self._host.now_ms(), self._host.directory)

    def sign_for(self, user: User, lasts_s: int) -> tuple[str, int]:
        """Return a token for a user, and when it expires. Raises TokenRefusedError as `sign`."""
        now_ms = self._host.now_ms()
        return self._own_tokens().sign_for(user, now_ms, lasts_s, self._host.directory)

    def sign(self, namespaces: list[str], subject: str, lasts_s: int) -> str:
        """Sign a token. Raises TokenRefusedError if the node has only a public key."""
        now_ms = self._host.now_ms()
        return self._own_tokens().sign(namespaces, subject, now_ms, lasts_s)

    def _own_tokens(self) -> JobTokens:
        if self._tokens is None:
            self._tokens = JobTokens(self._host.settings, self._folder)
        return self._tokens


def import_shards(settings: Settings) -> Any:
    """Return the module of the store on Redis and PostgreSQL. Raises ConfigError.

    It is imported by name, because its dependencies are an optional extra.
    """
    from importlib import import_module

    try:
        shards = import_module("leveret.job_service.shards")
    except ModuleNotFoundError as fault:
        package = (fault.name or "").partition(".")[0]
        if package not in _DRIVERS:
            raise
        raise ConfigError(
            f"jobs_postgres: jobs on Redis and PostgreSQL need the package {package}, which is not"
            " installed: run pip install 'leveret[jobs]'"
        ) from fault
    shards.check_addresses(str(settings.jobs_redis), settings.jobs_postgres.split())
    return shards


async def _count_topics(store: Any) -> list[TopicReport]:
    """Return the topics with the most jobs; none if the store cannot count them."""
    try:
        found = await store.stats(None)
    except JobsError as fault:
        log.info("the jobs cannot be counted for the metrics: %s", fault)
        return []
    found.sort(key=lambda each: -(each.ready or 0) - (each.leased or 0))
    return [
        TopicReport(
            namespace=each.namespace,
            topic=each.topic,
            states={} if each.missing else {name: getattr(each, name) for name in _STATES},
            oldest_ready_ms=each.oldest_ready_ms,
            counts={name: getattr(each, name) for name in _COUNTS},
        )
        for each in found[:TOPICS_MAX]
    ]


class _EmbeddedHost:
    """The node, with the interface that the embedded store needs."""

    def __init__(self, host: JobsHost) -> None:
        self._host = host
        self.broker = host.broker
        self.node_name = host.node_name
        self.now_ms = host.now_ms
        self.turn = host.turn
        self.synced = host.synced
        self.begin_sync = host.begin_sync
        self.sync_end = host.sync_end
        self.alarms = host.alarms
        self.sessions = host.sessions

    def make_vhost(self, name: str) -> Vhost:
        """Return a vhost. Administrators get all permissions on a new vhost."""
        host = self._host
        if name not in host.broker.vhosts:
            host.definitions.vhosts.put(name, {})
            for account in host.directory.users.all():
                if ADMINISTRATOR in account.tags:
                    permissions = host.directory.permissions
                    permissions.put(name, account.name, _EVERYTHING, _EVERYTHING, _EVERYTHING)
        return host.broker.vhost(name)
