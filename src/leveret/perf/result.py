"""The results of one run, as plain data and as JSON."""

from dataclasses import dataclass

from leveret.perf.latency import Histogram
from leveret.perf.measurements import ProgressRow, percentiles


@dataclass(frozen=True)
class Result:
    """Counts and latencies between the start of the run and its end."""

    seconds: float
    counts: dict[str, int]  # keys are measurements.COUNTS
    latency: Histogram
    confirm_latency: Histogram
    producers_cpu_s: float  # CPU time of the load generator, not of the broker
    consumers_cpu_s: float
    sent_each: list[int]  # messages of each producer
    received_each: list[int]  # messages of each consumer
    rows: list[ProgressRow]  # one for each interval

    @property
    def sent(self) -> int:
        return self.counts["sent"]

    @property
    def confirmed(self) -> int:
        return self.counts["confirmed"]

    @property
    def received(self) -> int:
        return self.counts["received"]

    def rate(self, name: str) -> float:
        return self.counts[name] / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """Return the results as one JSON object, with latencies in µs."""
        return {
            "seconds": round(self.seconds, 3),
            **self.counts,
            "send_rate": round(self.rate("sent")),
            "confirm_rate": round(self.rate("confirmed")),
            "receive_rate": round(self.rate("received")),
            "latency_us": percentiles(self.latency),
            "confirm_latency_us": percentiles(self.confirm_latency),
            "generator_cpu_s": {
                "producers": round(self.producers_cpu_s, 3),
                "consumers": round(self.consumers_cpu_s, 3),
            },
            "sent_each": self.sent_each,
            "received_each": self.received_each,
            "rows": [row.to_json() for row in self.rows],
        }
