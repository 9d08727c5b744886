"""What a load is made of. `Load` is plain data: it goes to the agents' processes as it is.

A schedule is pairs of a value and the seconds for which it holds, over and over: a rate of 0 in one
is silence, while `rate` 0 means no limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from leveret.amqp_client.uri import AddressError, parse_amqp_uri
from leveret.errors import ConfigError

# These are never transient.
DURABLE_TYPES = frozenset({"quorum", "stream"})
PREFETCH_MAX = 0xFFFF
BODY_BYTES_MAX = 512 * 1024 * 1024
PROCESSES_MAX = 64
# From so many connections on, idle ones look less often whether they should stop.
_MANY = 64

Schedule = tuple[tuple[int, float], ...]
Pairs = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Load:
    """One run: who sends, who receives, what, and for how long."""

    host: str = "127.0.0.1"
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls: bool = False
    tls_verify: bool = True  # the broker's certificate must be one that this machine trusts
    tls_ca: str = ""  # file of the authorities to trust instead of those of this machine
    producers: int = 1
    consumers: int = 1
    processes: int = 1  # for producers, and as many for consumers
    queue: str = ""  # name; several get -0, -1 …; empty: a name of the run's own
    queues: int = 1  # shared out among producers, and among consumers
    queue_type: str = ""  # empty: whatever the broker makes
    queue_arguments: Pairs = ()
    predeclared: bool = False  # queues and exchange exist, and stay
    exchange: str = ""  # empty: straight to the queues
    exchange_type: str = "direct"
    routing_keys: tuple[str, ...] = ()  # in turn; empty: the name of the queue
    binding_keys: tuple[str, ...] = ()  # each queue gets all; empty: the routing keys
    binding_arguments: Pairs = ()
    headers: Pairs = ()
    sizes: tuple[int, ...] = (16,)  # bytes of the bodies, in turn
    variable_size: Schedule = ()
    seconds: float = 5.0  # 0 = until `messages`
    messages: int = 0  # 0 = until `seconds`
    persistent: bool = False
    mandatory: bool = False
    confirm_window: int = 0  # unconfirmed messages of a producer at most; 0 = no confirms
    prefetch: int = 0  # 0 = no acks at all
    ack_every: int = 0  # acks of so many at once; 0 = half of the prefetch
    stream_offset: str = "next"
    rate: int = 0  # messages a second of all producers together; 0 = as many as go
    variable_rate: Schedule = ()
    consumer_rate: int = 0  # the same for all consumers together
    burst: int = 32  # messages that a producer sends at once
    interval_s: float = 1.0  # between two rows of the progress

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Load":
        """A load from JSON: lists stand for tuples. Raises ConfigError for unknown names."""
        known = {field.name for field in fields(cls)}
        faults = [f"a load has no {name}" for name in values if name not in known]
        if faults:
            raise ConfigError("\n".join(faults))
        load = cls(**{name: _tuples(value) for name, value in values.items()})  # type: ignore[arg-type]
        load.check()
        return load

    def check(self) -> None:
        """Raise ConfigError with every fault."""
        faults = [
            f"{field.name} may not be negative"
            for field in fields(self)
            if isinstance(getattr(self, field.name), int | float) and getattr(self, field.name) < 0
        ]
        faults += self._range_faults()
        faults += self._sense_faults()
        if faults:
            raise ConfigError("\n".join(faults))

    def _range_faults(self) -> list[str]:
        sizes = [*self.sizes, *(size for size, _ in self.variable_size)]
        spans = [*self.variable_rate, *self.variable_size]
        checks = (
            (self.burst == 0 or self.queues == 0, "burst and queues must be over 0"),
            (self.interval_s == 0, "interval_s must be over 0"),
            (self.seconds == 0 and not self.messages, "seconds or messages must be over 0"),
            (self.prefetch > PREFETCH_MAX, f"prefetch is at most {PREFETCH_MAX}"),
            (not 1 <= self.processes <= PROCESSES_MAX, f"processes are 1 to {PROCESSES_MAX}"),
            (not sizes or min(sizes) < 0, "a size is 0 or more"),
            (max(sizes, default=0) > BODY_BYTES_MAX, f"a size is at most {BODY_BYTES_MAX}"),
            (any(span <= 0 or n < 0 for n, span in spans), "a schedule is VALUE:SECONDS over 0"),
        )
        return [text for is_wrong, text in checks if is_wrong]

    def _sense_faults(self) -> list[str]:
        is_stream = self.queue_type == "stream"
        checks = (
            (self.producers + self.consumers == 0, "there are neither producers nor consumers"),
            (self.ack_every > self.prefetch, "ack_every may not be over the prefetch"),
            (
                is_stream and self.consumers > 0 and self.prefetch == 0,
                "a stream is read with a prefetch",
            ),
            (self.predeclared and not self.queue, "predeclared queues need their name"),
            (bool(self.variable_rate) and self.rate > 0, "either a rate or a variable one"),
        )
        return [text for is_wrong, text in checks if is_wrong]

    @property
    def durable(self) -> bool:
        """Whether the queues are declared durable."""
        return self.persistent or self.queue_type in DURABLE_TYPES

    @property
    def acks_every(self) -> int:
        """Deliveries of one ack; 0 = they are not acknowledged."""
        return self.ack_every or (self.prefetch + 1) // 2

    @property
    def sample_every(self) -> int:
        """One latency in how many is measured: all where the rate is set, else a few.

        Seven has no divisor in common with usual bursts, so that every place in a burst is seen.
        """
        return 1 if self.rate or self.variable_rate else 7

    @property
    def wake_s(self) -> float:
        """How often a connection that waits looks whether it should stop."""
        return 0.1 if self.producers + self.consumers <= _MANY else 1.0


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
