"""What the store asks of the node that it is in."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from leveret.engine.broker import Broker
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost


class Host(Protocol):
    """The node, as seen from the store."""

    @property
    def node_name(self) -> str:
        """The name of this node."""

    @property
    def broker(self) -> Broker:
        """The engine. It is changed inside a `turn` only."""

    def now_ms(self) -> int:
        """The time of the node."""

    def turn(self) -> AbstractContextManager[None]:
        """A turn of the engine around some commands: one block of the log."""

    async def synced(self) -> None:
        """Return when everything up to now is on disk; StorageError where it cannot be."""

    def alarms(self) -> Sequence[str]:
        """The alarms in force, each as a sentence."""

    def sessions(self) -> list[Session]:
        """Everything that holds messages, the leases of the store included."""

    def make_vhost(self, name: str) -> Vhost:
        """The vhost of this name, made if there is none, inside a `turn`."""
