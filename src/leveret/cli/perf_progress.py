"""Progress of `leveret perf`: a live table on a terminal, otherwise one line per interval."""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from leveret.perf.latency import Histogram
from leveret.perf.load import Load
from leveret.perf.measurements import ProgressRow
from leveret.perf.report import format_duration

ROWS_SHOWN: Final = 15  # in the live table
_TITLES: Final = ("time", "sent/s", "received/s", "confirmed/s", "nacked/s", "p50", "p99", "max")

OnRow = Callable[[ProgressRow], None]


@contextlib.contextmanager
def progress(load: Load) -> Iterator[OnRow]:
    """Show each row on stderr. Standard output is for the results."""
    console = Console(stderr=True)
    if not console.is_terminal:
        sys.stderr.write(format_line(_TITLES) + "\n")
        yield _write_line
        return
    rows: deque[tuple[str, ...]] = deque(maxlen=ROWS_SHOWN)
    with Live(_table(rows), console=console, auto_refresh=False, transient=True) as live:

        def show(row: ProgressRow) -> None:
            rows.append(format_cells(row))
            live.update(_table(rows), refresh=True)

        yield show


def format_cells(row: ProgressRow) -> tuple[str, ...]:
    """Return a row as text. Without consumers, the latencies are the times to confirm."""
    latency = row.latency if row.latency.count else row.confirm_latency
    counts = [f"{row.rate(name):,.0f}" for name in ("sent", "received", "confirmed", "nacked")]
    return (f"{row.at_s:.1f} s", *counts, *_latencies(latency))


def _latencies(latency: Histogram) -> tuple[str, str, str]:
    if not latency.count:
        return ("–", "–", "–")
    p50, p99 = (format_duration(latency.percentile(percent) / 1e3) for percent in (50, 99))
    return p50, p99, format_duration(int(latency.max_ns) / 1e3)


def format_line(words: tuple[str, ...]) -> str:
    return "  ".join(word.rjust(11) for word in words)


def _write_line(row: ProgressRow) -> None:
    sys.stderr.write(format_line(format_cells(row)) + "\n")
    sys.stderr.flush()


def _table(rows: deque[tuple[str, ...]]) -> Table:
    table = Table()
    for title in _TITLES:
        table.add_column(title, justify="right", min_width=8)
    for row in rows:
        table.add_row(*row)
    return table
