"""The settings of a bus: every limit and every deadline by name."""

import math
from dataclasses import dataclass, fields
from typing import Final

TIME_S_MIN: Final = 0.001
PREFETCH_MAX: Final = 65_535  # AMQP has two bytes for it
_MAY_BE_ZERO: Final = ("resend", "heartbeat_s", "stop_deadline_s", "body_bytes_max")


@dataclass(frozen=True)
class BusSettings:
    """How a bus behaves; the defaults are meant for a service in production."""

    concurrency: int = 8  # handlers that run at once
    threads_max: int = 8  # for handlers that are plain functions
    publish_timeout_s: float = 30.0
    outstanding_max: int = 1_000  # publishes of `send` whose confirm is awaited
    body_bytes_max: int = 134_217_728  # as the brokers' default
    resend: bool = True  # publish again, with the same id, what a lost connection left in doubt
    # Messages that are too early (425)
    early_wait_s_min: float = 0.2
    early_wait_s_max: float = 2.0
    early_waiting_max: int = 8  # that wait at once, besides those that are handled
    # Connections
    # After two of these a broker gives to others what a consumer holds that was cut off silently.
    heartbeat_s: int = 3
    connect_timeout_s: float = 5.0
    probe_interval_s: float = 1.5  # the broker is asked for the consumer so often
    answer_timeout_s: float = 3.0  # of any call to the broker
    backoff_s_min: float = 0.1
    backoff_s_max: float = 3.0
    stop_deadline_s: float = 30.0  # for handlers that run when the bus stops

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name in _MAY_BE_ZERO else 1 if each.type is int else TIME_S_MIN
            if not least <= value < math.inf:
                raise ValueError(f"{each.name} must be {least:g} or more, not {value}")
        if self.early_wait_s_min > self.early_wait_s_max:
            raise ValueError("early_wait_s_min must not be above early_wait_s_max")
        if self.backoff_s_min > self.backoff_s_max:
            raise ValueError("backoff_s_min must not be above backoff_s_max")
        if self.prefetch > PREFETCH_MAX:
            text = f"concurrency and early_waiting_max are at most {PREFETCH_MAX} together"
            raise ValueError(f"{text}, not {self.prefetch}")

    @property
    def prefetch(self) -> int:
        """Deliveries that may be unsettled: those handled, and those that wait for their time."""
        return self.concurrency + self.early_waiting_max
