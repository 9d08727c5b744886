"""The figures of one run, as plain data and as JSON."""

from dataclasses import dataclass

from leveret.perf.latency import Histogram


@dataclass(frozen=True)
class Received:
    """What the consumers' process hands back."""

    count: int
    cpu_s: float
    latency_max_ns: int
    latency_buckets: list[int]


@dataclass(frozen=True)
class Result:
    """What was counted between the start of the producers and the end of the time."""

    seconds: float
    sent: int
    confirmed: int
    nacked: int
    received: int
    latency: Histogram
    producers_cpu_s: float  # of the load generator itself, not of the broker
    consumers_cpu_s: float

    def to_json(self) -> dict[str, object]:
        """One object with plain names; latencies in µs."""
        percents = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
        latency = {name: self.latency.percentile(at) / 1e3 for name, at in percents.items()}
        return {
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            "confirmed": self.confirmed,
            "nacked": self.nacked,
            "received": self.received,
            "send_rate": round(self.sent / self.seconds),
            "receive_rate": round(self.received / self.seconds),
            "latency_us": {**latency, "max": int(self.latency.max_ns) / 1e3},
            "generator_cpu_s": {
                "producers": round(self.producers_cpu_s, 3),
                "consumers": round(self.consumers_cpu_s, 3),
            },
        }
