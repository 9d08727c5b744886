"""What an agent reports, and what becomes of it: counts so far, and latencies since the last time.

agents ──Sample──► Tally ──► Row, one for each interval, and the totals
"""

from dataclasses import dataclass, field

from leveret.perf.latency import Histogram

COUNTS = ("sent", "confirmed", "nacked", "returned", "received")
PERCENTS = {"p50": 50.0, "p75": 75.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}


@dataclass(frozen=True)
class Sample:
    """One report of one agent. Counts are since the start, latencies since the last report."""

    at_s: float  # since the start
    counts: dict[str, int]
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_ns: int = 0  # since the start
    confirm_latency: dict[int, int] = field(default_factory=dict)
    confirm_latency_max_ns: int = 0
    cpu_s: float = 0.0  # of the agent's process, since the start
    is_done: bool = False  # a producers' agent has nothing more to send
    last_s: float = 0.0  # since the start: when the last message was sent, settled or received
    each: list[int] = field(default_factory=list)  # messages of each worker


@dataclass(frozen=True)
class Row:
    """One interval of a run: what happened in it, by all agents together."""

    at_s: float  # end of the interval, since the start
    seconds: float  # its length
    counts: dict[str, int]  # in the interval
    latency: Histogram
    confirm_latency: Histogram

    def rate(self, name: str) -> float:
        return self.counts[name] / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        rates = {f"{name}_rate": round(self.rate(name)) for name in COUNTS}
        row: dict[str, object] = {"at_s": round(self.at_s, 3), **rates}
        row["latency_us"] = percentiles(self.latency)
        row["confirm_latency_us"] = percentiles(self.confirm_latency)
        return row


def percentiles(latency: Histogram) -> dict[str, float]:
    """Latencies in µs by the names of PERCENTS, and `max`; all 0 where nothing was measured."""
    found = {name: latency.percentile(percent) / 1e3 for name, percent in PERCENTS.items()}
    return {**found, "max": int(latency.max_ns) / 1e3}


class Tally:
    """Adds up what the agents report; a row is ready when each has reported its time."""

    def __init__(self, agents: int, interval_s: float) -> None:
        self._interval_s = interval_s
        self._latest: list[Sample] = [Sample(0.0, dict.fromkeys(COUNTS, 0))] * agents
        self._row_latency = Histogram()
        self._row_confirm_latency = Histogram()
        self._row_counts = dict.fromkeys(COUNTS, 0)  # totals at the end of the last row
        self._row_at_s = 0.0
        self.latency = Histogram()
        self.confirm_latency = Histogram()

    def add(self, agent: int, sample: Sample) -> None:
        self._latest[agent] = sample
        for histogram in (self.latency, self._row_latency):
            histogram.add_counts(sample.latency, sample.latency_max_ns)
        for histogram in (self.confirm_latency, self._row_confirm_latency):
            histogram.add_counts(sample.confirm_latency, sample.confirm_latency_max_ns)

    def totals(self) -> dict[str, int]:
        return {name: sum(sample.counts[name] for sample in self._latest) for name in COUNTS}

    def cpu_s(self, agents: range) -> float:
        return sum(self._latest[agent].cpu_s for agent in agents)

    def each(self, agents: range) -> list[int]:
        """The messages of each worker of these agents."""
        return [count for agent in agents for count in self._latest[agent].each]

    def at_s(self) -> float:
        """The moment up to which all have reported."""
        return min((sample.at_s for sample in self._latest), default=0.0)

    def last_s(self) -> float:
        """When the last message of all was seen."""
        return max((sample.last_s for sample in self._latest), default=0.0)

    def is_done(self, agents: range) -> bool:
        return all(self._latest[agent].is_done for agent in agents)

    def maybe_row(self) -> Row | None:
        """The row of the next interval, when every agent has got so far."""
        at_s = self.at_s()
        if at_s - self._row_at_s < self._interval_s * 0.999:
            return None
        return self.cut_row(at_s)

    def cut_row(self, at_s: float) -> Row:
        """Everything since the last row."""
        totals = self.totals()
        counts = {name: totals[name] - self._row_counts[name] for name in COUNTS}
        latency, confirm_latency = self._row_latency, self._row_confirm_latency
        # The maximum so far says nothing of this interval; its highest bucket does.
        for histogram in (latency, confirm_latency):
            histogram.max_ns = min(histogram.max_ns, histogram.highest_ns())
        row = Row(at_s, at_s - self._row_at_s, counts, latency, confirm_latency)
        self._row_latency, self._row_confirm_latency = Histogram(), Histogram()
        self._row_counts, self._row_at_s = totals, at_s
        return row
