"""What a load is made of. `Load` is plain data: it goes to the consumers' process as it is."""

from dataclasses import dataclass, fields

from leveret.errors import ConfigError

# These are never transient.
DURABLE_TYPES = frozenset({"quorum", "stream"})


@dataclass(frozen=True)
class Load:
    """One run: who sends, who receives, what, and for how long."""

    host: str = "127.0.0.1"
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    producers: int = 1
    consumers: int = 1
    queues: int = 1  # producer and consumer number n use queue n modulo this
    queue_type: str = ""  # empty: whatever the broker makes
    body_bytes: int = 16
    seconds: float = 5.0
    persistent: bool = False
    confirm_window: int = 0  # unconfirmed messages of a producer at most; 0 = no confirms
    prefetch: int = 0  # acks of many, each half of it; 0 = no acks at all
    rate: int = 0  # messages a second of all producers together; 0 = as many as go
    burst: int = 32  # messages that a producer sends at once

    def check(self) -> None:
        """Raise ConfigError with every fault."""
        faults = [
            f"{field.name} may not be negative"
            for field in fields(self)
            if isinstance(getattr(self, field.name), int | float) and getattr(self, field.name) < 0
        ]
        if self.seconds == 0 or self.burst == 0 or self.queues == 0:
            faults.append("seconds, burst and queues must be over 0")
        if self.prefetch > 0xFFFF:
            faults.append("prefetch is at most 65535")
        if faults:
            raise ConfigError("\n".join(faults))

    @property
    def durable(self) -> bool:
        """Whether the queues are declared durable."""
        return self.persistent or self.queue_type in DURABLE_TYPES

    @property
    def sample_every(self) -> int:
        """One latency in how many is measured: all where the rate is set, else a few.

        Seven has no divisor in common with usual bursts, so that every place in a burst is seen.
        """
        return 1 if self.rate else 7
