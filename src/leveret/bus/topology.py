"""A topology as data: exchanges, queues and bindings with their exact arguments.

`fanout` and `topic` make the two that ship, `declare` applies one. Everything is durable.
A `Layout` is what one service needs of a topology: where it publishes, what it consumes, where a
message waits before it is tried again, and where dead letters go. Nothing here talks to a broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar

Argument = str | int | bool
Arguments = Mapping[str, Argument]

DEFAULT_EXCHANGE: Final = ""
DELAY_S_MIN: Final = 0.001
DELAY_S_MAX: Final = 7 * 24 * 3600.0
NAME_BYTES_MAX: Final = 255  # of exchanges, queues and routing keys, in AMQP

_T = TypeVar("_T")


class ExchangeType(StrEnum):
    """How an exchange routes."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"


class QueueType(StrEnum):
    """How a queue is kept."""

    CLASSIC = "classic"
    QUORUM = "quorum"


@dataclass(frozen=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: ExchangeType
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class Queue:
    """A durable queue."""

    name: str
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    """What leads from an exchange to a queue."""

    exchange: str
    queue: str
    routing_key: str = ""


@dataclass(frozen=True)
class Topology:
    """What must exist at the broker. Exchanges and queues come before the bindings between them."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __post_init__(self) -> None:
        names = {exchange.name for exchange in self.exchanges}
        queues = {queue.name for queue in self.queues}
        for name in (*names, *queues):
            require_name(name)
        for binding in self.bindings:
            assert binding.exchange in names, f"{binding} is of no exchange of the topology"
            assert binding.queue in queues, f"{binding} leads to no queue of the topology"

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            _joined(self.exchanges, other.exchanges),
            _joined(self.queues, other.queues),
            _joined(self.bindings, other.bindings),
        )


@dataclass(frozen=True)
class Target:
    """Where a message is published."""

    exchange: str
    routing_key: str = ""


@dataclass(frozen=True)
class DelayStep:
    """A queue in which messages wait `delay_ms` before they come back to the service's queue."""

    delay_ms: int
    queue: str


@dataclass(frozen=True)
class Layout:
    """What one service needs of its topology.

    `consuming` is everything, `publishing` the part that a service needs which only publishes:
    it must not declare a queue that nobody reads. A message that is rejected comes back by itself
    after `retry_delay_s`; other delays are `steps`, each with a queue of its own.
    """

    service: str
    queue: str
    dlq: str
    dead_letters: Target
    retry_queue: str
    retry_exchange: str  # by which rejected messages get there
    retry_delay_s: float
    retries_max: int
    exchange: str
    consuming: Topology
    publishing: Topology
    queue_type: QueueType
    mandatory: bool  # whether a publish that reaches no queue is an error
    permanent_to_dlq: bool  # whether a permanent fault goes to the dead letters without retries
    counts_in_header: bool  # whether dead letters carry x-retry-count as the bus counts it
    ignores_unknown: bool  # whether an event without a handler is acked, or is a permanent fault
    steps: tuple[DelayStep, ...] = ()

    @property
    def retry_delay_ms(self) -> int:
        """Return the delay as the broker's queue argument has it."""
        return milliseconds(self.retry_delay_s)

    def step(self, delay_ms: int) -> DelayStep | None:
        """Where a message waits so long; None where a reject does it."""
        if delay_ms == self.retry_delay_ms:
            return None
        for step in self.steps:
            if step.delay_ms == delay_ms:
                return step
        raise AssertionError(f"the layout of {self.queue} has no step of {delay_ms} ms")

    def with_delays(self, delays_ms: tuple[int, ...]) -> "Layout":
        """The same with a queue for each of these delays that it has none for yet."""
        known = {self.retry_delay_ms, *(step.delay_ms for step in self.steps)}
        wanted = sorted({delay_ms for delay_ms in delays_ms if delay_ms not in known})
        added = tuple(DelayStep(ms, f"{self.retry_queue}.{ms}ms") for ms in wanted)
        queues = tuple(self._delay_queue(step) for step in added)
        topology = self.consuming + Topology(queues=queues)
        return replace(self, steps=self.steps + added, consuming=topology)

    def _delay_queue(self, step: DelayStep) -> Queue:
        return Queue(step.queue, delay_arguments(self.queue_type, step.delay_ms, self.queue))


def delay_arguments(queue_type: QueueType, delay_ms: int, back_to: str) -> Arguments:
    """Of a queue that gives its messages back to another queue after a time."""
    return {
        **type_arguments(queue_type),
        "x-dead-letter-exchange": DEFAULT_EXCHANGE,
        "x-dead-letter-routing-key": back_to,
        "x-message-ttl": delay_ms,
    }


def type_arguments(queue_type: QueueType) -> Arguments:
    """Classic is what a queue is without an argument, and what other programs declare."""
    return {} if queue_type is QueueType.CLASSIC else {"x-queue-type": str(queue_type)}


def milliseconds(delay_s: float) -> int:
    """Return a delay in whole milliseconds. Raise ValueError unless it is from 1 ms to 7 days."""
    if not DELAY_S_MIN <= delay_s <= DELAY_S_MAX:
        raise ValueError(f"a delay is from {DELAY_S_MIN:g} to {DELAY_S_MAX:g} s, not {delay_s}")
    return round(delay_s * 1000)


def require_name(name: str) -> None:
    """Raise ValueError for a name that AMQP cannot carry."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"a name of AMQP has 1 to {NAME_BYTES_MAX} bytes, not {name!r}")


def _joined(first: tuple[_T, ...], second: tuple[_T, ...]) -> tuple[_T, ...]:
    return first + tuple(item for item in second if item not in first)
