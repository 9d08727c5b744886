"""Reports of the worker processes, and the rows and totals that are made of them.

worker processes ──Sample──► Tally ──► one ProgressRow per interval, and the totals
"""

from dataclasses import dataclass, field

from leveret.perf.latency import Histogram

COUNTS = ("sent", "confirmed", "nacked", "returned", "received")
PERCENTS = {"p50": 50.0, "p75": 75.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}


@dataclass(frozen=True)
class Sample:
    """One report of one process. Counts are since the start, latencies since the last report."""

    at_s: float  # since the start
    counts: dict[str, int]
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_ns: int = 0  # since the start
    confirm_latency: dict[int, int] = field(default_factory=dict)
    confirm_latency_max_ns: int = 0
    cpu_s: float = 0.0  # CPU time of the process since the start
    is_done: bool = False  # producers have sent and settled everything
    last_s: float = 0.0  # time of the last message, since the start
    each: list[int] = field(default_factory=list)  # messages of each worker thread


@dataclass(frozen=True)
class ProgressRow:
    """One interval of a run: the counts and latencies of all processes together."""

    at_s: float  # end of the interval, since the start
    seconds: float  # length of the interval
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
    """Return latencies in µs by the names in PERCENTS, and `max`; 0 if nothing was measured."""
    found = {name: latency.percentile(percent) / 1e3 for name, percent in PERCENTS.items()}
    return {**found, "max": int(latency.max_ns) / 1e3}


class Tally:
    """Adds up the reports. A row is ready when every process has reported its interval."""

    def __init__(self, processes: int, interval_s: float) -> None:
        self._interval_s = interval_s
        self._latest: list[Sample] = [Sample(0.0, dict.fromkeys(COUNTS, 0))] * processes
        self._row_latency = Histogram()
        self._row_confirm_latency = Histogram()
        self._row_counts = dict.fromkeys(COUNTS, 0)  # totals at the end of the last row
        self._row_at_s = 0.0
        self.latency = Histogram()
        self.confirm_latency = Histogram()

    def add(self, process: int, sample: Sample) -> None:
        self._latest[process] = sample
        for histogram in (self.latency, self._row_latency):
            histogram.add_counts(sample.latency, sample.latency_max_ns)
        for histogram in (self.confirm_latency, self._row_confirm_latency):
            histogram.add_counts(sample.confirm_latency, sample.confirm_latency_max_ns)

    def totals(self) -> dict[str, int]:
        return {name: sum(sample.counts[name] for sample in self._latest) for name in COUNTS}

    def cpu_s(self, processes: range) -> float:
        return sum(self._latest[process].cpu_s for process in processes)

    def each(self, processes: range) -> list[int]:
        """Return the messages of each worker thread of these processes."""
        return [count for process in processes for count in self._latest[process].each]

    def at_s(self) -> float:
        """Return the time up to which all processes have reported."""
        return min((sample.at_s for sample in self._latest), default=0.0)

    def last_s(self) -> float:
        """Return the time of the last message."""
        return max((sample.last_s for sample in self._latest), default=0.0)

    def is_done(self, processes: range) -> bool:
        return all(self._latest[process].is_done for process in processes)

    def maybe_row(self) -> ProgressRow | None:
        """Return the row of the next interval, or None if a process has not reported it yet."""
        at_s = self.at_s()
        if at_s - self._row_at_s < self._interval_s * 0.999:
            return None
        return self.cut_row(at_s)

    def cut_row(self, at_s: float) -> ProgressRow:
        """Return everything since the last row as a new row."""
        totals = self.totals()
        counts = {name: totals[name] - self._row_counts[name] for name in COUNTS}
        latency, confirm_latency = self._row_latency, self._row_confirm_latency
        # `max_ns` covers the whole run. The highest bucket limits it to this interval.
        for histogram in (latency, confirm_latency):
            histogram.max_ns = min(histogram.max_ns, histogram.highest_ns())
        row = ProgressRow(at_s, at_s - self._row_at_s, counts, latency, confirm_latency)
        self._row_latency, self._row_confirm_latency = Histogram(), Histogram()
        self._row_counts, self._row_at_s = totals, at_s
        return row
