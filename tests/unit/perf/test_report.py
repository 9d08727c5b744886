"""Description and results of a run as text."""

from leveret.perf.latency import Histogram
from leveret.perf.load import Load
from leveret.perf.measurements import COUNTS, ProgressRow
from leveret.perf.report import chart_page, describe_load, format_duration, result_facts
from leveret.perf.result import Result


def result() -> Result:
    latency = Histogram()
    for ns in (100_000, 200_000, 5_000_000):
        latency.add(ns)
    counts = {**dict.fromkeys(COUNTS, 0), "sent": 200, "received": 100}
    rows = [
        ProgressRow(1.0, 1.0, counts, latency, Histogram()),
        ProgressRow(2.0, 1.0, counts, latency, latency),
    ]
    return Result(2.0, counts, latency, Histogram(), 0.1, 0.3, [200], [100], rows)


def test_load_in_one_line() -> None:
    load = Load(producers=2, queue_type="quorum", sizes=(16, 1024), prefetch=200, confirm_window=9)
    assert describe_load(load) == (
        "2 producers, 1 consumer, 1 quorum queue, 16/1,024 B, confirms 9, "
        "prefetch 200, ack every 100"
    )
    assert "auto-ack" in describe_load(Load())


def test_facts_leave_out_counts_of_zero() -> None:
    found = dict(result_facts(result()))
    assert found["sent"] == "200 (100/s)"
    assert found["received"] == "100 (50/s)"
    assert "nacked" not in found
    assert "time to confirm" not in found
    assert found["generator CPU"] == "0.40 s, 2000.00 µs per message"
    assert found["latency"].endswith("max 5 ms")


def test_duration_is_shown_in_its_natural_unit() -> None:
    assert [format_duration(us) for us in (0.5, 42, 1500, 2.5e6)] == [
        "0.5 µs",
        "42 µs",
        "1.5 ms",
        "2.5 s",
    ]


def test_page_has_rates_and_latencies() -> None:
    text = chart_page(Load(), result())
    for word in ("Rate", "Latency", "Time to confirm", "p99.9", "received"):
        assert word in text
    assert ">nacked<" not in text
