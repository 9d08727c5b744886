"""The settings of a bus: every limit and every time, in seconds."""

import math
from dataclasses import dataclass, fields
from typing import Final

TIME_S_MIN: Final = 0.001  # of settings that may not be zero
PREFETCH_MAX: Final = 65_535  # AMQP has two bytes for the prefetch count
_MAY_BE_ZERO: Final = ("resend", "heartbeat_s", "stop_deadline_s", "body_bytes_max")


@dataclass(frozen=True)
class BusSettings:
    """Limits and times of a bus. The defaults suit a service in production."""

    concurrency: int = 8  # handlers that run at once
    threads_max: int = 8  # for handlers that are plain functions
    publish_timeout_s: float = 30.0
    outstanding_max: int = 1_000  # open confirms of `send`
    body_bytes_max: int = 134_217_728  # the default limit of the brokers
    resend: bool = (
        True  # publish again, with the same id, if the connection is lost before the confirm
    )
    # A handler that runs longer has failed. RabbitMQ and Leveret take a message back after 30
    # minutes; it may wait for one handler before its own begins.
    handler_timeout_s: float = 600.0
    early_wait_s: float = 1.0  # before a message with status 425 comes back
    blocked_loop_s: float = 2.0  # a handler that blocks the event loop for longer is named
    # After two heartbeats without a sign the broker gives the messages to other consumers.
    heartbeat_s: int = 3
    connect_timeout_s: float = 5.0
    probe_interval_s: float = 1.5  # between two questions for our consumer
    answer_timeout_s: float = 3.0  # for any call to the broker
    backoff_s_min: float = 0.1
    backoff_s_max: float = 3.0
    outbox_poll_s: float = 0.2  # between two reads of an empty outbox
    stop_deadline_s: float = 30.0  # for handlers that still run when the bus stops

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name in _MAY_BE_ZERO else 1 if each.type is int else TIME_S_MIN
            if not least <= value < math.inf:
                raise ValueError(f"{each.name} must be {least:g} or more, not {value}")
        if self.backoff_s_min > self.backoff_s_max:
            raise ValueError("backoff_s_min must not be above backoff_s_max")
        if self.prefetch > PREFETCH_MAX:
            raise ValueError(f"concurrency must be at most {PREFETCH_MAX // 2}")

    @property
    def prefetch(self) -> int:
        """Unsettled deliveries at most: those being handled, and one more behind each of them."""
        return 2 * self.concurrency
