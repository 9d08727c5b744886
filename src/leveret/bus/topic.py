"""The topic topology: quorum queues, a retry queue, and dead letters behind an exchange.

    publisher ──► topic exchange ──routing key──► {Queue}
    rejected  ──► {Queue}.retry, for the retry delay ──► back to {Queue}
    permanent fault, or too often ──► {Queue}.dlq (fanout exchange) ──► {Queue}.dlq (queue)

Other programs declare the same names with the same arguments, so both must stay as they are.
"""

from dataclasses import replace
from typing import Final

from leveret.bus.topology import (
    DEFAULT_EXCHANGE,
    Binding,
    Exchange,
    ExchangeType,
    Layout,
    PublishAddress,
    Queue,
    QueueType,
    Topology,
    delay_arguments,
    milliseconds,
    type_arguments,
)

RETRY_DELAY_S: Final = 5.0
RETRIES_MAX: Final = 5


def retry_queue(queue: str) -> str:
    """Return the queue in which rejected messages wait."""
    return f"{queue}.retry"


def dlq_name(queue: str) -> str:
    """Return the name of the dead-letter exchange and of the queue behind it."""
    return f"{queue}.dlq"


def layout(
    queue: str,
    *,
    exchange: str = DEFAULT_EXCHANGE,
    routing_keys: tuple[str, ...] = (),
    queue_type: QueueType = QueueType.QUORUM,
    retries_max: int = RETRIES_MAX,
    retry_delay_s: float = RETRY_DELAY_S,
) -> Layout:
    """Return the layout of a queue and the exchange before it.

    Without an exchange, messages are published to the queue by its name.
    """
    _require_tuple(routing_keys)
    if bool(exchange) != bool(routing_keys):
        raise ValueError("give both a topic exchange and the routing keys bound to it, or neither")
    return Layout(
        service=queue,
        queue=queue,
        dlq=dlq_name(queue),
        dead_letters=PublishAddress(dlq_name(queue)),
        retry_queue=retry_queue(queue),
        retry_exchange=DEFAULT_EXCHANGE,
        retry_delay_s=retry_delay_s,
        retries_max=retries_max,
        exchange=exchange,
        consuming=_topology(queue, queue_type, exchange, routing_keys, milliseconds(retry_delay_s)),
        publishing=Topology(_exchanges(exchange)),
        queue_type=queue_type,
        mandatory=True,
        permanent_to_dlq=True,
        counts_in_header=True,
        ignores_unknown=False,
    )


def _require_tuple(routing_keys: object) -> None:
    """Raise TypeError for a str: it would become one key for each of its letters."""
    if isinstance(routing_keys, str):
        raise TypeError(f"routing_keys must be a tuple of keys: ({routing_keys!r},)")


def publisher(exchange: str) -> Layout:
    """Return the layout of a program that only publishes to a topic exchange."""
    unread = layout(f"{exchange}.unread", exchange=exchange, routing_keys=("#",))
    return replace(unread, consuming=unread.publishing)


def _exchanges(exchange: str) -> tuple[Exchange, ...]:
    return (Exchange(exchange, ExchangeType.TOPIC),) if exchange else ()


def _topology(
    queue: str,
    queue_type: QueueType,
    exchange: str,
    routing_keys: tuple[str, ...],
    retry_delay_ms: int,
) -> Topology:
    typed = type_arguments(queue_type)
    dlq = dlq_name(queue)
    rejected = {
        **typed,
        "x-dead-letter-exchange": DEFAULT_EXCHANGE,
        "x-dead-letter-routing-key": retry_queue(queue),
    }
    waiting = delay_arguments(queue_type, retry_delay_ms, queue)
    bound = tuple(Binding(exchange, queue, key) for key in routing_keys)
    return Topology(
        exchanges=(*_exchanges(exchange), Exchange(dlq, ExchangeType.FANOUT)),
        queues=(Queue(queue, rejected), Queue(retry_queue(queue), waiting), Queue(dlq, typed)),
        bindings=(*bound, Binding(dlq, dlq)),
    )
