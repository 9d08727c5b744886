"""What a load does while it runs: a live table on a terminal, elsewhere a line each interval."""

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
from leveret.perf.sample import Row
from leveret.perf.story import duration

ROWS_SHOWN: Final = 15  # of the live table
_TITLES: Final = ("time", "sent/s", "received/s", "confirmed/s", "nacked/s", "p50", "p99", "max")

OnRow = Callable[[Row], None]


@contextlib.contextmanager
def progress(load: Load) -> Iterator[OnRow]:
    """Tells of each row, on stderr: stdout is for the figures."""
    console = Console(stderr=True)
    if not console.is_terminal:
        sys.stderr.write(line(_TITLES) + "\n")
        yield _write_line
        return
    rows: deque[tuple[str, ...]] = deque(maxlen=ROWS_SHOWN)
    with Live(_table(rows), console=console, auto_refresh=False, transient=True) as live:

        def show(row: Row) -> None:
            rows.append(cells(row))
            live.update(_table(rows), refresh=True)

        yield show


def cells(row: Row) -> tuple[str, ...]:
    """A row as words; times to confirm stand in where nothing is received."""
    latency = row.latency if row.latency.count else row.confirm_latency
    counts = [f"{row.rate(name):,.0f}" for name in ("sent", "received", "confirmed", "nacked")]
    return (f"{row.at_s:.1f} s", *counts, *_latencies(latency))


def _latencies(latency: Histogram) -> tuple[str, str, str]:
    if not latency.count:
        return ("–", "–", "–")
    p50, p99 = (duration(latency.percentile(percent) / 1e3) for percent in (50, 99))
    return p50, p99, duration(int(latency.max_ns) / 1e3)


def line(words: tuple[str, ...]) -> str:
    return "  ".join(word.rjust(11) for word in words)


def _write_line(row: Row) -> None:
    sys.stderr.write(line(cells(row)) + "\n")
    sys.stderr.flush()


def _table(rows: deque[tuple[str, ...]]) -> Table:
    table = Table()
    for title in _TITLES:
        table.add_column(title, justify="right", min_width=8)
    for row in rows:
        table.add_row(*row)
    return table
