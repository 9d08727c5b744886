"""The fanout topology: every service of a prefix gets every message and retries on its own.

    publisher ──► {prefix}.main-exchange (fanout) ──► {prefix}.queue.{service}, one for each service
    rejected  ──► {prefix}.retry-exchange.{service} (direct, key `retry`)
              ──► {prefix}.retry-queue.{service}, 5 s ──► back to {prefix}.queue.{service} alone
    10 times  ──► {prefix}.dlq.{service}

Other programs declare the same names with the same arguments, so both must stay as they are.
"""

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
    require_name,
)

DEFAULT_PREFIX: Final = "default"
RETRY_KEY: Final = "retry"
RETRY_DELAY_S: Final = 5.0
RETRIES_MAX: Final = 10


def prefix_of(service: str) -> str:
    """Return the part before the first hyphen, or `default` without one."""
    prefix, hyphen, _ = service.partition("-")
    return prefix if hyphen and prefix else DEFAULT_PREFIX


def main_exchange(service: str) -> str:
    """Return the exchange to which every service of the prefix publishes."""
    return f"{prefix_of(service)}.main-exchange"


def queue_name(service: str) -> str:
    """Return the queue that the service consumes."""
    return f"{prefix_of(service)}.queue.{service}"


def retry_exchange(service: str) -> str:
    """Return the exchange for rejected messages."""
    return f"{prefix_of(service)}.retry-exchange.{service}"


def retry_queue(service: str) -> str:
    """Return the queue in which rejected messages wait."""
    return f"{prefix_of(service)}.retry-queue.{service}"


def dlq_name(service: str) -> str:
    """Return the dead-letter queue."""
    return f"{prefix_of(service)}.dlq.{service}"


def layout(
    service: str, *, retry_delay_s: float = RETRY_DELAY_S, retries_max: int = RETRIES_MAX
) -> Layout:
    """Return the layout of one service.

    The retry delay is not part of any name, so programs that share a queue must use the same.
    """
    require_name(service)
    return Layout(
        service=service,
        queue=queue_name(service),
        dlq=dlq_name(service),
        dead_letters=PublishAddress(DEFAULT_EXCHANGE, dlq_name(service)),
        retry_queue=retry_queue(service),
        retry_exchange=retry_exchange(service),
        retry_delay_s=retry_delay_s,
        retries_max=retries_max,
        exchange=main_exchange(service),
        consuming=_topology(service, milliseconds(retry_delay_s)),
        publishing=Topology((_main(service),)),
        queue_type=QueueType.CLASSIC,
        mandatory=False,
        permanent_to_dlq=False,
        counts_in_header=False,
        ignores_unknown=True,
    )


def _main(service: str) -> Exchange:
    return Exchange(main_exchange(service), ExchangeType.FANOUT)


def _topology(service: str, retry_delay_ms: int) -> Topology:
    retry = retry_exchange(service)
    queue = queue_name(service)
    rejected = {"x-dead-letter-exchange": retry, "x-dead-letter-routing-key": RETRY_KEY}
    waiting = delay_arguments(QueueType.CLASSIC, retry_delay_ms, queue)
    return Topology(
        exchanges=(_main(service), Exchange(retry, ExchangeType.DIRECT)),
        queues=(
            Queue(queue, rejected),
            Queue(retry_queue(service), waiting),
            Queue(dlq_name(service)),
        ),
        bindings=(
            Binding(main_exchange(service), queue),
            Binding(retry, retry_queue(service), RETRY_KEY),
        ),
    )
