"""Progress rows as text."""

from leveret.cli.perf_progress import format_cells, format_line
from leveret.perf.latency import Histogram
from leveret.perf.measurements import COUNTS, ProgressRow


def histogram(*values_ns: int) -> Histogram:
    made = Histogram()
    for value in values_ns:
        made.add(value)
    return made


def row(latency: Histogram, confirm_latency: Histogram) -> ProgressRow:
    counts = {**dict.fromkeys(COUNTS, 0), "sent": 3000, "received": 2000, "nacked": 2}
    return ProgressRow(7.0, 2.0, counts, latency, confirm_latency)


def test_row_has_rates_and_latencies() -> None:
    shown = format_cells(row(histogram(60_000, 60_000), histogram(5)))
    assert shown[:5] == ("7.0 s", "1,500", "1,000", "0", "1")
    assert shown[-1] == "60 µs"


def test_time_to_confirm_is_shown_if_nothing_is_received() -> None:
    assert format_cells(row(histogram(), histogram(5_000_000)))[-1] == "5 ms"
    assert format_cells(row(histogram(), histogram()))[-3:] == ("–", "–", "–")


def test_columns_are_aligned() -> None:
    assert len(format_line(("a", "bc"))) == len(format_line(("1,000,000", "2")))
