"""What the HTTP front may ask of the running node.

The node gives an object of this shape to `HttpFront`; the resources under /api read it and nothing
else of the node. Kept apart from app.py so that naming the type does not import Starlette.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from leveret.arrow.reads import BulkReads
from leveret.auth import Authority, Directory
from leveret.definitions import Book
from leveret.engine.broker import Broker
from leveret.engine.session import Session
from leveret.shovels import Shovels
from leveret.tasks import Tasks


class Backups(Protocol):
    """Makes backups, and restores queues from them."""

    async def node(self) -> AsyncIterator[bytes]:
        """An archive of everything durable, as of now."""

    async def queue(self, vhost: str, name: str) -> AsyncIterator[bytes]:
        """An archive of one queue, as of now."""

    async def restore(self, vhost: str, name: str, pieces: AsyncIterator[bytes]) -> int:
        """Publish what an archive holds into a queue; how many messages."""


class BrokerFacts(Protocol):
    """The node, as seen from HTTP."""

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
    def shovels(self) -> Shovels:
        """What carries messages between brokers."""

    @property
    def bulk_reads(self) -> BulkReads:
        """Reads of whole ranges of streams."""
