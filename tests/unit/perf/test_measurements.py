"""Reports of several worker processes become rows and totals."""

from leveret.perf.latency import Histogram
from leveret.perf.measurements import COUNTS, Sample, Tally, percentiles


def sample(
    at_s: float, latency_ns: int = 0, each: list[int] | None = None, **counts: int
) -> Sample:
    latency = Histogram()
    if latency_ns:
        latency.add(latency_ns)
    return Sample(
        at_s,
        {**dict.fromkeys(COUNTS, 0), **counts},
        latency.since(Histogram()),
        latency.max_ns,
        each=each or [],
    )


def test_row_waits_for_the_slowest_process() -> None:
    tally = Tally(2, 1.0)
    tally.add(0, sample(1.0, received=10))
    assert tally.maybe_row() is None
    tally.add(1, sample(1.0, sent=20))
    row = tally.maybe_row()
    assert row is not None
    assert (row.at_s, row.seconds, row.counts["received"], row.rate("sent")) == (1.0, 1.0, 10, 20)
    assert tally.maybe_row() is None


def test_row_has_the_counts_of_its_interval() -> None:
    tally = Tally(1, 1.0)
    tally.add(0, sample(1.0, 9_000_000, received=10))
    assert tally.maybe_row() is not None
    tally.add(0, sample(2.0, 1000, received=15))
    row = tally.maybe_row()
    assert row is not None
    assert (row.counts["received"], row.latency.count) == (5, 1)
    assert row.latency.max_ns < 2000
    assert tally.latency.count == 2
    assert tally.latency.max_ns == 9_000_000


def test_quick_reports_make_one_row_for_each_interval() -> None:
    tally = Tally(1, 1.0)
    rows = 0
    for tenth in range(1, 31):
        tally.add(0, sample(tenth / 10, received=tenth))
        rows += tally.maybe_row() is not None
    assert rows == 3


def test_counts_are_kept_per_worker() -> None:
    tally = Tally(3, 1.0)
    for agent, each in enumerate(([1], [2, 3], [4])):
        tally.add(agent, sample(1.0, each=each))
    assert tally.each(range(1, 3)) == [2, 3, 4]


def test_percentiles_are_in_microseconds() -> None:
    latency = Histogram()
    latency.add(63_000)
    found = percentiles(latency)
    assert found["max"] == 63
    assert set(found) == {"p50", "p75", "p95", "p99", "p99.9", "max"}
