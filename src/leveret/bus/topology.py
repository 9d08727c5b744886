"""A topology as data: exchanges, queues and bindings with their exact arguments.

`fanout` and `topic` build the two topologies of the bus; `connections/declare.py` declares one.
Everything is durable. A `Layout` is one service's view of a topology: where it publishes, what it
consumes, where a message waits before a retry, and where dead letters go. Nothing here talks to a
broker.
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
WAIT_STEP_S_MAX: Final = 1 << 19  # six days, the largest power of two below DELAY_S_MAX
NAME_BYTES_MAX: Final = 255  # AMQP's limit for exchanges, queues and routing keys

_T = TypeVar("_T")


class ExchangeType(StrEnum):
    """The types of exchanges."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"


class QueueType(StrEnum):
    """The types of queues."""

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
    """A binding from an exchange to a queue."""

    exchange: str
    queue: str
    routing_key: str = ""


@dataclass(frozen=True)
class Topology:
    """Exchanges, queues and the bindings between them. A binding needs both its ends here."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __post_init__(self) -> None:
        names = {exchange.name for exchange in self.exchanges}
        queues = {queue.name for queue in self.queues}
        for name in (*names, *queues):
            require_name(name)
        for binding in self.bindings:
            assert binding.exchange in names, f"the exchange of {binding} is not in the topology"
            assert binding.queue in queues, f"the queue of {binding} is not in the topology"

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            _joined(self.exchanges, other.exchanges),
            _joined(self.queues, other.queues),
            _joined(self.bindings, other.bindings),
        )


@dataclass(frozen=True)
class PublishAddress:
    """The exchange and the routing key of a publish."""

    exchange: str
    routing_key: str = ""


@dataclass(frozen=True)
class DelayStep:
    """A queue in which messages wait `delay_ms` before they return to the service's queue."""

    delay_ms: int
    queue: str


@dataclass(frozen=True)
class Layout:
    """One service's view of its topology.

    `consuming` is the whole topology. `publishing` is the part for a service that only publishes,
    which must not declare a queue that nobody reads. A rejected message returns by itself after
    `retry_delay_s`. Other delays are `steps`, each with a queue of its own.
    """

    service: str
    queue: str
    dlq: str
    dead_letters: PublishAddress
    retry_queue: str
    retry_exchange: str  # through which rejected messages reach the retry queue
    retry_delay_s: float
    retries_max: int
    exchange: str
    consuming: Topology
    publishing: Topology
    queue_type: QueueType
    mandatory: bool  # True: a publish that reaches no queue is an error
    permanent_to_dlq: bool  # True: a permanent fault becomes a dead letter without retries
    counts_in_header: bool  # True: dead letters carry x-retry-count as the bus counts it
    ignores_unknown: bool  # True: ack an event without a handler; False: a permanent fault
    steps: tuple[DelayStep, ...] = ()

    @property
    def retry_delay_ms(self) -> int:
        """The retry delay as the queue argument has it."""
        return milliseconds(self.retry_delay_s)

    def has_delay(self, delay_ms: int) -> bool:
        """Return True if there is a queue with this delay."""
        return delay_ms == self.retry_delay_ms or any(
            step.delay_ms == delay_ms for step in self.steps
        )

    @property
    def returned(self) -> Queue:
        """The queue for messages that came back without an answer.

        If the broker gives up a message of this queue, it becomes a dead letter.
        """
        given_up = {
            "x-dead-letter-exchange": DEFAULT_EXCHANGE,
            "x-dead-letter-routing-key": self.dlq,
        }
        name = f"{self.retry_queue}.returned"
        return Queue(name, {**type_arguments(self.queue_type), **given_up})

    def step(self, delay_ms: int) -> DelayStep | None:
        """Return the step with this delay; None for the delay of the retry queue itself."""
        if delay_ms == self.retry_delay_ms:
            return None
        for step in self.steps:
            if step.delay_ms == delay_ms:
                return step
        raise AssertionError(f"the layout of {self.queue} has no step of {delay_ms} ms")

    def with_delays(self, delays_ms: tuple[int, ...]) -> "Layout":
        """Return the layout with a queue for each of these delays."""
        known = {self.retry_delay_ms, *(step.delay_ms for step in self.steps)}
        wanted = sorted({delay_ms for delay_ms in delays_ms if delay_ms not in known})
        added = tuple(DelayStep(ms, f"{self.retry_queue}.{ms}ms") for ms in wanted)
        queues = tuple(self._delay_queue(step) for step in added)
        topology = self.consuming + Topology(queues=queues)
        return replace(self, steps=self.steps + added, consuming=topology)

    def _delay_queue(self, step: DelayStep) -> Queue:
        return Queue(step.queue, delay_arguments(self.queue_type, step.delay_ms, self.queue))


def delay_arguments(queue_type: QueueType, delay_ms: int, back_to: str) -> Arguments:
    """Return the arguments of a queue whose messages move to `back_to` after the delay."""
    return {
        **type_arguments(queue_type),
        "x-dead-letter-exchange": DEFAULT_EXCHANGE,
        "x-dead-letter-routing-key": back_to,
        "x-message-ttl": delay_ms,
    }


def wait_step_ms(wait_ms: int) -> int:
    """Return the longest step that fits into a wait: a power of two in seconds, 0 if none does.

    A message that waits for any time passes a few of these queues, each a step of that time.
    """
    if wait_ms < 1000:
        return 0
    return min(1 << ((wait_ms // 1000).bit_length() - 1), WAIT_STEP_S_MAX) * 1000


def type_arguments(queue_type: QueueType) -> Arguments:
    """Return the argument for a queue type. Classic has none, because other programs send none."""
    return {} if queue_type is QueueType.CLASSIC else {"x-queue-type": str(queue_type)}


def milliseconds(delay_s: float) -> int:
    """Return a delay in whole milliseconds. Raise ValueError unless it is from 1 ms to 7 days."""
    if not DELAY_S_MIN <= delay_s <= DELAY_S_MAX:
        raise ValueError(f"a delay is from {DELAY_S_MIN:g} to {DELAY_S_MAX:g} s, not {delay_s}")
    return round(delay_s * 1000)


def require_name(name: str) -> None:
    """Raise ValueError unless AMQP can carry the name."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"a name in AMQP has 1 to {NAME_BYTES_MAX} bytes, not {name!r}")


def _joined(first: tuple[_T, ...], second: tuple[_T, ...]) -> tuple[_T, ...]:
    return first + tuple(item for item in second if item not in first)
