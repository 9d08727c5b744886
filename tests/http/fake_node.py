"""A fake node: the interface `NodeView` without a broker process."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any

from leveret.arrow.bulk_reads import BulkReads
from leveret.auth import (
    Authenticator,
    JobAccess,
    SingleUserAuthenticator,
    User,
    UserDirectory,
)
from leveret.config.settings import Settings
from leveret.definitions import Definitions
from leveret.engine.broker import Broker
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Outlet, Session
from leveret.federation import FederationManager
from leveret.http.framework.node import (
    ChannelSnapshot,
    ConnectionSnapshot,
    Jobs,
    Listener,
    LoopStats,
    Machine,
)
from leveret.http.framework.request_counts import RequestCounts
from leveret.job_service.report import StoreReport
from leveret.leases import ReaderLeases
from leveret.shovels import ShovelManager
from leveret.slices import Slices
from leveret.tasks import Tasks


class NoBackups:
    """Backups that cannot be made."""

    async def node(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        raise NotImplementedError


class NoJobs:
    """A jobs service that was never used."""

    def maybe_store(self) -> Any:
        return None

    async def store(self) -> Any:
        raise NotImplementedError

    def report(self) -> StoreReport:
        return StoreReport()

    async def full_report(self) -> StoreReport:
        raise NotImplementedError

    def access(self, token: str) -> JobAccess:
        raise NotImplementedError

    def sign_for(self, user: User, lasts_s: int) -> tuple[str, int]:
        raise NotImplementedError


class NoConnections:
    """No connections."""

    def outlets(self) -> list[Outlet]:
        return []

    def owner(self, outlet: Outlet) -> tuple[str, str]:
        raise NotImplementedError

    def client_name(self, outlet: Outlet) -> str:
        raise NotImplementedError

    def snapshot(self, outlet: Outlet) -> ConnectionSnapshot | None:
        return None

    def sessions(self, outlet: Outlet) -> list[Session]:
        return []

    def channel_snapshot(self, session: Session) -> ChannelSnapshot:
        raise NotImplementedError

    def add_counts(self, counts: TrafficCounts, vhost: str) -> None:
        pass

    def close(self, outlet: Outlet, reason: str) -> None:
        pass


class NoMetrics:
    """No metrics."""

    def __init__(self) -> None:
        self.requests = RequestCounts()

    def scrape(self, endpoint: str, slices: Slices) -> AsyncIterator[bytes]:
        raise NotImplementedError

    def scrape_groups(
        self,
        groups: frozenset[str],
        vhosts: frozenset[str],
        queues: tuple[str, ...],
        slices: Slices,
    ) -> AsyncIterator[bytes]:
        raise NotImplementedError

    def loop(self) -> LoopStats:
        raise NotImplementedError


class FakeNode:
    """A node with the given alarms."""

    node_name = "hare"
    durability = "sync"
    cluster = None
    product_version = "4.3.0"

    def __init__(self, *alarms: str) -> None:
        self._alarms = alarms
        self.broker = Broker(1)
        self.authenticator: Authenticator = SingleUserAuthenticator("guest", "guest")
        self.directory = UserDirectory(self.broker.register, lambda: 0)
        self.backups = NoBackups()
        self.definitions = Definitions(self.broker, "hare", "4.3.0")
        self.connections = NoConnections()
        self.settings = Settings()
        self.metrics = NoMetrics()

    def now_ms(self) -> int:
        return 1

    def machine(self) -> Machine:
        return Machine(
            pid=1,
            started_ms=0,
            memory_used_bytes=0,
            memory_held_bytes=0,
            memory_limit_bytes=0,
            disk_free_bytes=0,
            disk_limit_bytes=0,
            descriptors_used=0,
            descriptors_max=0,
            processors=1,
            load=0.0,
            context_switches=0,
            data="",
        )

    def listeners(self) -> tuple[Listener, ...]:
        return ()

    def certificates(self) -> tuple[tuple[str, int], ...]:
        return ()

    def background_faults(self) -> list[str]:
        return []

    def clock_fault(self) -> str:
        return ""

    def slow_sync_s(self) -> float:
        return 0.0

    def alarms(self) -> tuple[str, ...]:
        return self._alarms

    def turn(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def close_connections(self, vhost: str) -> None:
        raise NotImplementedError

    async def tellable(self) -> None:
        pass

    async def synced(self) -> None:
        raise NotImplementedError

    def sessions(self) -> list[Session]:
        return []

    @property
    def tasks(self) -> Tasks:
        raise NotImplementedError

    @property
    def leases(self) -> ReaderLeases:
        raise NotImplementedError

    @property
    def shovels(self) -> ShovelManager:
        raise NotImplementedError

    @property
    def federation(self) -> FederationManager:
        raise NotImplementedError

    @property
    def jobs(self) -> Jobs:
        return NoJobs()

    @property
    def bulk_reads(self) -> BulkReads:
        raise NotImplementedError
