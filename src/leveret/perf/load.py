"""`Load`: the settings of a run, as plain data that is sent to the worker processes.

A schedule is a list of pairs (value, seconds) that repeats. A rate of 0 in a schedule means a
pause, while `rate` 0 means no limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from leveret.amqp_client.uri import AddressError, parse_amqp_uri
from leveret.errors import ConfigError

# Queues of these types are always durable.
DURABLE_TYPES = frozenset({"quorum", "stream"})
PREFETCH_MAX = 0xFFFF
BODY_BYTES_MAX = 512 * 1024 * 1024
PROCESSES_MAX = 64
# With more connections than this, idle ones check less often whether to stop.
_CONNECTIONS_MANY = 64

Schedule = tuple[tuple[int, float], ...]
Pairs = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Load:
    """Settings of one run."""

    host: str = "127.0.0.1"
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls: bool = False
    tls_verify: bool = True  # check the broker's certificate
    tls_ca: str = ""  # file of CA certificates to trust instead of the system's
    producers: int = 1
    consumers: int = 1
    processes: int = 1  # for producers, and the same number for consumers
    queue: str = ""  # name; several queues get -0, -1 …; empty: a random name
    queues: int = 1  # assigned to producers in turn, and to consumers in turn
    queue_type: str = ""  # empty: the broker's default
    queue_arguments: Pairs = ()
    predeclared: bool = False  # use existing queues and exchange; do not delete them
    exchange: str = ""  # empty: publish directly to the queues
    exchange_type: str = "direct"
    routing_keys: tuple[str, ...] = ()  # used in turn; empty: the queue name
    binding_keys: tuple[
        str, ...
    ] = ()  # each queue is bound with all of them; empty: the routing keys
    binding_arguments: Pairs = ()
    headers: Pairs = ()
    sizes: tuple[int, ...] = (16,)  # body sizes in bytes, used in turn
    variable_size: Schedule = ()
    seconds: float = 5.0  # 0 = until `messages`
    messages: int = 0  # 0 = until `seconds`
    persistent: bool = False
    mandatory: bool = False
    confirm_window: int = 0  # maximum unconfirmed messages of a producer; 0 = no confirms
    prefetch: int = 0  # 0 = auto-ack
    ack_every: int = 0  # deliveries per ack; 0 = half of the prefetch
    stream_offset: str = "next"
    rate: int = 0  # messages per second of all producers together; 0 = no limit
    variable_rate: Schedule = ()
    consumer_rate: int = 0  # the same for all consumers together
    burst: int = 32  # messages that a producer sends in one write
    interval_s: float = 1.0  # between two progress rows

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Load":
        """Make a load from JSON; lists become tuples. Raise ConfigError for unknown names."""
        known = {field.name for field in fields(cls)}
        faults = [f"a load has no {name}" for name in values if name not in known]
        if faults:
            raise ConfigError("\n".join(faults))
        load = cls(**{name: _tuples(value) for name, value in values.items()})  # type: ignore[arg-type]
        load.check()
        return load

    def check(self) -> None:
        """Raise ConfigError with all errors."""
        faults = [
            f"{field.name} may not be negative"
            for field in fields(self)
            if isinstance(getattr(self, field.name), int | float) and getattr(self, field.name) < 0
        ]
        faults += self._range_faults()
        faults += self._combination_faults()
        if faults:
            raise ConfigError("\n".join(faults))

    def _range_faults(self) -> list[str]:
        sizes = [*self.sizes, *(size for size, _ in self.variable_size)]
        spans = [*self.variable_rate, *self.variable_size]
        checks = (
            (self.burst == 0 or self.queues == 0, "burst and queues must be greater than 0"),
            (self.interval_s == 0, "interval_s must be greater than 0"),
            (self.seconds == 0 and not self.messages, "seconds or messages must be greater than 0"),
            (self.prefetch > PREFETCH_MAX, f"prefetch may be at most {PREFETCH_MAX}"),
            (
                not 1 <= self.processes <= PROCESSES_MAX,
                f"processes must be between 1 and {PROCESSES_MAX}",
            ),
            (not sizes or min(sizes) < 0, "a size must be 0 or more"),
            (max(sizes, default=0) > BODY_BYTES_MAX, f"a size may be at most {BODY_BYTES_MAX}"),
            (
                any(span <= 0 or n < 0 for n, span in spans),
                "a schedule needs VALUE:SECONDS with seconds greater than 0",
            ),
        )
        return [text for is_wrong, text in checks if is_wrong]

    def _combination_faults(self) -> list[str]:
        is_stream = self.queue_type == "stream"
        checks = (
            (self.producers + self.consumers == 0, "there must be a producer or a consumer"),
            (self.ack_every > self.prefetch, "ack_every may not be greater than the prefetch"),
            (
                is_stream and self.consumers > 0 and self.prefetch == 0,
                "consumers of a stream need a prefetch",
            ),
            (self.predeclared and not self.queue, "predeclared needs the name of the queue"),
            (
                bool(self.variable_rate) and self.rate > 0,
                "rate and variable rate cannot both be set",
            ),
        )
        return [text for is_wrong, text in checks if is_wrong]

    @property
    def durable(self) -> bool:
        """True if the queues are declared durable."""
        return self.persistent or self.queue_type in DURABLE_TYPES

    @property
    def acks_every(self) -> int:
        """Deliveries per ack; 0 = no acks."""
        return self.ack_every or (self.prefetch + 1) // 2

    @property
    def sample_every(self) -> int:
        """Measure the latency of one in this many messages: of all if a rate is set.

        Seven has no common divisor with usual burst sizes, so that every position in a burst is
        measured.
        """
        return 1 if self.rate or self.variable_rate else 7

    @property
    def wake_s(self) -> float:
        """Seconds between two checks of a waiting connection whether to stop."""
        return 0.1 if self.producers + self.consumers <= _CONNECTIONS_MANY else 1.0


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def with_uri(load: Load, uri: str) -> Load:
    """Return the load with the broker at `uri` as its target. Raise ConfigError."""
    try:
        found = parse_amqp_uri(uri, load.vhost)
    except AddressError as fault:
        raise ConfigError(str(fault)) from fault
    return replace(
        load,
        host=found.host or load.host,
        port=found.port,
        user=found.user,
        password=found.password,
        vhost=found.vhost,
        tls=found.tls,
    )
