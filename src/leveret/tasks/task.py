"""A request for work on messages, and the record of its progress, which is kept in memory."""

from dataclasses import dataclass, field
from typing import Final

from leveret.engine.insight.filters import Filter

RUNNING: Final = "running"
DONE: Final = "done"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"


@dataclass(frozen=True)
class TaskEndpoint:
    """A queue, or an exchange with a routing key (None: the key of each message)."""

    vhost: str
    queue: str = ""
    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True)
class TaskRequest:
    """A request to move, copy, delete or redrive messages of a queue."""

    kind: str  # one of leveret.engine.commands.moving.KINDS
    source: TaskEndpoint
    seqs: list[int] | None = None  # messages by sequence number; None: all
    filter: Filter | None = None
    to: TaskEndpoint | None = (
        None  # None if nothing is pushed, or for a redrive, whose target is in the message
    )
    limit: int | None = None  # messages
    rate: float | None = None  # messages per second
    keep_attempts: bool = False


@dataclass
class Task:
    """A request that is or was carried out."""

    id: str
    kind: str
    user: str
    source: TaskEndpoint
    target: TaskEndpoint | None
    started_at_ms: int
    total: int = 0  # messages to examine
    scanned: int = 0  # messages examined so far
    done: int = 0
    rate: float = 0.0  # messages per second, since the start
    skipped: dict[str, int] = field(default_factory=dict)  # messages by reason
    state: str = RUNNING
    waiting: str | None = None  # why it waits; None if it does not
    ended_at_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run: how many messages would go to which queues."""

    matched: int
    vhost: str  # of the target queues
    targets: dict[str, int]  # messages by queue
    skipped: dict[str, int]
