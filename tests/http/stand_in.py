"""A node as the HTTP front sees it, without the node."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

from leveret.arrow.reads import BulkReads
from leveret.auth import Authority, Directory, FixedAuthority
from leveret.definitions import Book
from leveret.engine.broker import Broker
from leveret.engine.session import Session
from leveret.shovels import Shovels
from leveret.tasks import Tasks


class NoBackups:
    """Nothing to back up."""

    async def node(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        raise NotImplementedError


class Facts:
    """A node that is as well as its list of alarms says."""

    node_name = "hare"
    durability = "sync"

    def __init__(self, *alarms: str) -> None:
        self._alarms = alarms
        self.broker = Broker(1)
        self.authority: Authority = FixedAuthority("guest", "guest")
        self.directory = Directory(self.broker.register, lambda: 0)
        self.backups = NoBackups()
        self.book = Book(self.broker, "hare", "4.3.0")

    def alarms(self) -> tuple[str, ...]:
        return self._alarms

    def turn(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def send_away(self, vhost: str) -> None:
        raise NotImplementedError

    async def synced(self) -> None:
        raise NotImplementedError

    def sessions(self) -> list[Session]:
        return []

    @property
    def tasks(self) -> Tasks:
        raise NotImplementedError

    @property
    def shovels(self) -> Shovels:
        raise NotImplementedError

    @property
    def bulk_reads(self) -> BulkReads:
        raise NotImplementedError
