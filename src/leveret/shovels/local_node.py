"""The services of the node that shovels need."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from leveret.engine.broker import Broker
from leveret.shovels.owner import UserLookup
from leveret.shovels.targets import TargetRules


@dataclass(frozen=True)
class LocalNode:
    """The node in which the shovels run, as its local ends see it."""

    broker: Broker
    turn: Callable[[], AbstractContextManager[None]]
    no_alarm: Callable[[], Awaitable[None]]  # returns when publishers are not blocked
    token: Callable[[], str]  # random characters for names
    consumer_timeout_ms: int
    user: UserLookup  # returns a user of the directory
    targets: TargetRules
    synced: Callable[[], Awaitable[None]]  # returns when all changes are on disk
    # Returns when every change so far may be shown outside: it is committed in the cluster.
    tellable: Callable[[], Awaitable[None]]
