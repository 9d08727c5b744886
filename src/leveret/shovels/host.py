"""What shovels need of the node that they run in."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from leveret.engine.broker import Broker


@dataclass(frozen=True)
class ThisNode:
    """What a local end needs of its node."""

    broker: Broker
    turn: Callable[[], AbstractContextManager[None]]
    no_alarm: Callable[[], Awaitable[None]]  # returns when publishers are not blocked
    token: Callable[[], str]  # random characters for names
    consumer_timeout_ms: int
    synced: Callable[[], Awaitable[None]]
