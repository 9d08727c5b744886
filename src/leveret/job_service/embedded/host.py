"""The interface of the node that the embedded store needs."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from leveret.engine.broker import Broker
from leveret.engine.turns.session import Session
from leveret.engine.vhosts.vhost import Vhost


class SyncEnd(Protocol):
    """The end of one wait for the log."""

    def then(self, on_end: Callable[[Exception | None], None]) -> None:
        """Call back with None or the fault, at the earliest when this call has returned.

        Call this outside the turn, at most once.
        """


class Host(Protocol):
    """The node, as seen from the store."""

    @property
    def node_name(self) -> str:
        """The name of this node."""

    @property
    def broker(self) -> Broker:
        """The engine. It may be changed only inside a `turn`."""

    def now_ms(self) -> int:
        """The time of the node."""

    def turn(self) -> AbstractContextManager[None]:
        """Return a turn of the engine: its commands are one block of the log."""

    async def synced(self) -> None:
        """Return when all commands so far are on disk; StorageError where that fails."""

    def begin_sync(self) -> "asyncio.Future[None]":
        """Begin `synced` inside a `turn`, whose commands count too."""

    def sync_end(self) -> SyncEnd:
        """Do as `begin_sync`, for a caller that wants to know the end as early as possible."""

    def alarms(self) -> Sequence[str]:
        """Return the active alarms, each as a sentence."""

    def sessions(self) -> list[Session]:
        """Return all sessions that hold messages, with the sessions of the store."""

    def make_vhost(self, name: str) -> Vhost:
        """Return the vhost of this name, inside a `turn`; create it if there is none."""
