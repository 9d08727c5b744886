"""The settings of a bus: every limit and every deadline by name."""

from dataclasses import dataclass, fields
from typing import Final

PREFETCH_MAX: Final = 65_535  # AMQP has two bytes for it
_MAY_BE_ZERO: Final = ("resend", "heartbeat_s", "stop_deadline_ms", "body_bytes_max")


@dataclass(frozen=True)
class BusSettings:
    """How a bus behaves; the defaults are meant for a service in production."""

    concurrency: int = 8  # handlers that run at once
    threads_max: int = 8  # for handlers that are plain functions
    publish_timeout_ms: int = 30_000
    outstanding_max: int = 1_000  # publishes of `send` whose confirm is awaited
    body_bytes_max: int = 134_217_728  # as the brokers' default
    resend: bool = True  # publish again, with the same id, what a lost connection left in doubt
    # Messages that are too early (425)
    early_wait_ms_min: int = 200
    early_wait_ms_max: int = 2_000
    early_waiting_max: int = 8  # that wait at once, besides those that are handled
    # Connections
    # After two of these a broker gives to others what a consumer holds that was cut off silently.
    heartbeat_s: int = 3
    connect_timeout_ms: int = 5_000
    probe_every_ms: int = 1_500  # the broker is asked for the consumer so often
    answer_timeout_ms: int = 3_000  # of any call to the broker
    backoff_ms_min: int = 100
    backoff_ms_max: int = 3_000
    stop_deadline_ms: int = 30_000  # for handlers that run when the bus stops

    def __post_init__(self) -> None:
        for each in fields(self):
            least = 0 if each.name in _MAY_BE_ZERO else 1
            if getattr(self, each.name) < least:
                raise ValueError(f"{each.name} is {least} or more, not {getattr(self, each.name)}")
        if self.early_wait_ms_min > self.early_wait_ms_max:
            raise ValueError("early_wait_ms_min is at most early_wait_ms_max")
        if self.backoff_ms_min > self.backoff_ms_max:
            raise ValueError("backoff_ms_min is at most backoff_ms_max")
        if self.prefetch > PREFETCH_MAX:
            text = f"concurrency and early_waiting_max are at most {PREFETCH_MAX} together"
            raise ValueError(f"{text}, not {self.prefetch}")

    @property
    def prefetch(self) -> int:
        """Deliveries that may be unsettled: those handled, and those that wait for their time."""
        return self.concurrency + self.early_waiting_max
