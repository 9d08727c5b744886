"""Describe a run: the load as one line, the result as named values and as a page of charts."""

from leveret.perf.chart import Chart, Series, page
from leveret.perf.load import Load
from leveret.perf.measurements import PERCENTS, ProgressRow, percentiles
from leveret.perf.result import Result

_RATES = ("sent", "received", "confirmed", "nacked", "returned")


def describe_load(load: Load) -> str:
    """Return the settings of a load as one line."""
    parts = [
        _count(load.producers, "producer"),
        _count(load.consumers, "consumer"),
        _count(load.queues, f"{load.queue_type} queue".strip()),
        _sizes(load),
        "persistent" if load.persistent else "",
        f"confirms {load.confirm_window}" if load.confirm_window else "",
        f"prefetch {load.prefetch}, ack every {load.acks_every}" if load.prefetch else "auto-ack",
        f"{load.exchange_type} exchange {load.exchange}" if load.exchange else "",
        f"{load.rate:,}/s" if load.rate else "",
        "rate " + ", ".join(f"{n:,}/s for {s:g} s" for n, s in load.variable_rate)
        if load.variable_rate
        else "",
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _sizes(load: Load) -> str:
    sizes = tuple(size for size, _ in load.variable_size) or load.sizes
    return "/".join(f"{size:,}" for size in sizes) + " B"


def result_facts(result: Result) -> list[tuple[str, str]]:
    """Return the results of a run as pairs of name and text."""
    found = [("time", f"{result.seconds:.2f} s")]
    found += [
        (name, f"{result.counts[name]:,} ({result.rate(name):,.0f}/s)")
        for name in _RATES
        if result.counts[name] or name in ("sent", "received")
    ]
    for title, latency in (
        ("latency", result.latency),
        ("time to confirm", result.confirm_latency),
    ):
        if latency.count:
            values = [f"{name} {format_duration(us)}" for name, us in percentiles(latency).items()]
            found.append((title, ", ".join(values)))
    cpu_s = result.producers_cpu_s + result.consumers_cpu_s
    messages = max(result.counts["sent"], result.counts["received"], 1)
    found.append(("generator CPU", f"{cpu_s:.2f} s, {cpu_s / messages * 1e6:.2f} µs per message"))
    return found


def format_duration(us: float) -> str:
    """Format a latency in µs with three digits and a unit."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def chart_page(load: Load, result: Result) -> str:
    """Return a page with charts of rates, latencies and times to confirm over time."""
    charts = [Chart("Rate", "messages per second", _rate_lines(result))]
    for title, pick in (("Latency", "latency"), ("Time to confirm", "confirm_latency")):
        lines = _latency_lines(result.rows, pick)
        if any(series.points for series in lines):
            charts.append(Chart(title, "ms, percentiles per interval", lines, is_log=True))
    return page("leveret perf", result_facts(result), charts, about=describe_load(load))


def _rate_lines(result: Result) -> list[Series]:
    return [
        Series(name, [(round(row.at_s, 2), row.rate(name)) for row in result.rows])
        for name in _RATES
        if result.counts[name]
    ]


def _latency_lines(rows: list[ProgressRow], pick: str) -> list[Series]:
    histograms = [(round(row.at_s, 2), getattr(row, pick)) for row in rows]
    return [
        Series(
            name, [(at_s, found.percentile(p) / 1e6) for at_s, found in histograms if found.count]
        )
        for name, p in PERCENTS.items()
    ]
