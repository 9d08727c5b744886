"""Puts the shovels into a node: what they need of it, and the parameters that describe them."""

from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Protocol

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.definitions import Book
from leveret.engine.broker import Broker
from leveret.shovels import ShovelManager
from leveret.shovels.local_node import LocalNode
from leveret.shovels.manager import COMPONENT


class Host(Protocol):
    """The node, as shovels see it."""

    settings: Settings
    broker: Broker
    book: Book
    shovels: ShovelManager

    def turn(self) -> AbstractContextManager[None]:
        """A turn of the engine."""

    def synced(self) -> Awaitable[None]:
        """Wait for the disk."""

    def no_alarm(self) -> Awaitable[None]:
        """Wait until publishers are not blocked."""

    def token(self) -> str:
        """Random characters for a name."""

    def tell(self, key: str, facts: dict[str, object]) -> None:
        """Tell whoever listens at the event exchange."""


def make_shovels(host: Host, clock: Clock) -> ShovelManager:
    """The shovels of a node; none runs yet."""
    parameters = host.book.parameters
    node = LocalNode(
        broker=host.broker,
        turn=host.turn,
        no_alarm=host.no_alarm,
        token=host.token,
        consumer_timeout_ms=host.settings.consumer_timeout_ms,
        synced=host.synced,
    )

    async def clear(vhost: str, name: str) -> None:
        with host.turn():
            parameters.drop(COMPONENT, vhost, name)
        await host.synced()

    shovels = ShovelManager(
        node, host.settings.node, now_ms=clock.now_ms, clear=clear, on_event=host.tell
    )

    def on_change(component: str, vhost: str, name: str) -> None:
        shovels.on_parameter(component, vhost, name, parameters.get(component, vhost, name))

    parameters.checks[COMPONENT] = shovels.faults
    parameters.on_change.append(on_change)
    return shovels


def load_shovels(host: Host) -> None:
    """Start the shovels that the node had when it ended."""
    rows = host.book.parameters.all(COMPONENT)
    host.shovels.load([(vhost, name, value) for _, vhost, name, value in rows])
