"""What a task is: an order, and the record of how far it is. Records are kept in memory alone."""

from dataclasses import dataclass, field
from typing import Final

from leveret.engine.insight.filters import Filter

RUNNING: Final = "running"
DONE: Final = "done"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"


@dataclass(frozen=True)
class TaskEndpoint:
    """A queue, or an exchange with a routing key (None: each message's own)."""

    vhost: str
    queue: str = ""
    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True)
class TaskRequest:
    """What is to be done with messages of a queue."""

    kind: str  # of leveret.engine.commands.moving.KINDS
    source: TaskEndpoint
    seqs: list[int] | None = None  # messages by sequence number; None: all
    filter: Filter | None = None
    to: TaskEndpoint | None = None  # None where nothing is pushed, or where the death record tells
    limit: int | None = None  # messages
    rate: float | None = None  # messages a second
    keep_attempts: bool = False


@dataclass
class Task:
    """An order that is, or was, carried out."""

    id: str
    kind: str
    user: str
    source: TaskEndpoint
    target: TaskEndpoint | None
    started_at_ms: int
    total: int = 0  # messages that are looked at
    scanned: int = 0  # so many have been
    done: int = 0
    rate: float = 0.0  # messages a second, since the start
    skipped: dict[str, int] = field(default_factory=dict)  # by reason
    state: str = RUNNING
    waiting: str | None = None  # what it waits for, if it does
    ended_at_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class DryRun:
    """What an order would do."""

    matched: int
    vhost: str  # of the targets
    targets: dict[str, int]  # messages by queue
    skipped: dict[str, int]
