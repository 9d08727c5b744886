"""Turn reports on dead letters, latency and jobs into pages of charts."""

from typing import Any, Final

from leveret.charts.axes import HOUR_S, parse_time_s, plain_number, time_step_s, unit_for
from leveret.charts.charts import Bars, Cell, Lines, Link, Page, Part, Series, Stacks, Table

Row = dict[str, Any]

COLUMNS_MAX: Final = 96  # bars over time; a longer report gets longer steps
QUEUES_MAX: Final = 8  # queues with charts of their own
HEADINGS: Final = {
    "queue": "queue",
    "reason": "reason",
    "error_class": "error class",
    "routing_key": "routing key",
    "service": "service",
}
_DURATIONS: Final = {
    "waiting": "time in queue",
    "in flight": "time in flight",
    "to ack": "time to ack",
}


def dead_letter_page(found: Row, sources: list[str], broker_url: str = "") -> Page:
    """Return dead letters over time by reason, by each dimension, and the worst combinations.

    With the address of the management page, each of the worst leads to its newest message.
    """
    figures = [
        ("dead letters", plain_number(found["letters"])),
        ("retries before death, most", plain_number(found["retries_max"] or 0)),
        ("time to death, half of them", duration_text(found["alive_ms_p50"])),
        ("time to death, 95 %", duration_text(found["alive_ms_p95"])),
    ]
    parts: list[Part] = [
        stacks("Dead letters over time, by reason", found["hours"], "hour", "reason", "letters")
    ]
    for name, heading in HEADINGS.items():
        rows = [(str(row["value"]), float(row["letters"])) for row in found["by"][name]]
        parts.append(Bars(f"By {heading}", heading, rows, scale="letters"))
    columns = [*HEADINGS, "letters", "retries_max", "last", "error"]
    worst = found["offenders"]
    if broker_url and any(row.get("newest_id") is not None for row in worst):
        columns.append("newest")
        worst = [
            {**row, "newest": _message_link(broker_url, row.get("newest_id"))} for row in worst
        ]
    parts.append(table("Top offenders", worst, columns))
    about = f"In {', '.join(sources)}; {_between(found['first'], found['last'])}"
    return Page("Dead letters", about, figures, parts)


def latency_page(found: Row, stream: str) -> Page:
    """Return percentiles over time for each queue, the busiest queues first."""
    queues = sorted(
        {row["queue"] for row in found["queues"]},
        key=lambda name: -sum(row["count"] for row in found["queues"] if row["queue"] == name),
    )
    parts: list[Part] = []
    for queue in queues[:QUEUES_MAX]:
        for kind, text in _DURATIONS.items():
            rows = [r for r in found["windows"] if (r["queue"], r["kind"]) == (queue, kind)]
            if rows:
                title, series = f"{queue}: {text}", _percentiles(rows)
                parts.append(Lines(title, series, "ms", scale=f"queue {queue}"))
    measures = ["kind", "count", "p50", "p95", "p99", "max"]
    parts.append(table("By queue, in ms", found["queues"], ["queue", *measures]))
    parts.append(table("By service, in ms", found["services"], ["queue", "service", *measures]))
    acked = [row for row in found["queues"] if row["kind"] == "to ack"]
    figures = [
        ("queues", plain_number(len(queues))),
        ("messages acked", plain_number(sum(row["count"] for row in acked))),
        (
            "slowest 1 % to ack, worst queue",
            duration_text(max((r["p99"] for r in acked), default=None)),
        ),
    ]
    window = duration_text(found["window_s"] * 1000)
    return Page("Latency", f"Life events of {stream}, in windows of {window}", figures, parts)


def jobs_page(found: Row, place: str) -> Page:
    """Return the backlog by topic, the errors of dead jobs, and arrivals and failures by hour."""
    states = ["ready", "scheduled", "leased", "dead"]
    figures = [(name, plain_number(found[name])) for name in states]
    oldest = max((row["oldest_ready_s"] or 0.0 for row in found["topics"]), default=0.0)
    figures.append(("oldest ready", duration_text(oldest * 1000)))
    rows = [{**row, "name": f"{row['namespace']}/{row['topic']}"} for row in found["topics"]]
    hours = [{**row, "name": f"{row['namespace']}/{row['topic']}"} for row in found["hours"]]
    parts: list[Part] = [
        _topic_bars("Waiting, by topic", rows, "ready"),
        _topic_bars("Dead, by topic", rows, "dead"),
    ]
    if hours:
        came = "Jobs that are still there, by the hour they came"
        parts.append(stacks(came, hours, "hour", "name", "came"))
        parts.append(stacks("Failures of these, by hour", hours, "hour", "name", "failed"))
    columns = ["namespace", "topic", *states, "oldest_ready_s", "retries", "failures"]
    parts.append(table("By topic", found["topics"], columns))
    errors = ["namespace", "topic", "error", "jobs", "last"]
    parts.append(table("Dead jobs by their last error", found["errors"], errors))
    return Page("Jobs", place, figures, parts)


def _topic_bars(title: str, rows: list[Row], state: str) -> Bars:
    found = [(row["name"], float(row[state])) for row in rows if row[state]]
    return Bars(title, "topic", sorted(found, key=lambda row: -row[1]))


def stacks(title: str, rows: list[Row], time: str, name: str, count: str) -> Stacks:
    """Return counts by time and name, with steps of an hour or more."""
    if not rows:
        return Stacks(title, [], HOUR_S)
    at = [parse_time_s(row[time]) for row in rows]
    step_s = max(time_step_s(min(at), max(at), COLUMNS_MAX), HOUR_S)
    sums: dict[str, dict[float, float]] = {}
    for row, when in zip(rows, at, strict=True):
        own = sums.setdefault(str(row[name]), {})
        start = when // step_s * step_s
        own[start] = own.get(start, 0.0) + row[count]
    names = sorted(sums, key=lambda each: (-sum(sums[each].values()), each))
    return Stacks(title, [Series(each, sorted(sums[each].items())) for each in names], step_s)


def table(title: str, rows: list[Row], columns: list[str]) -> Table:
    heads = [HEADINGS.get(name, name.replace("_", " ")) for name in columns]
    return Table(title, heads, [[_cell(row.get(name)) for name in columns] for row in rows])


def duration_text(ms: float | None) -> str:
    """Return a duration in the unit that suits it."""
    return "unknown" if ms is None else unit_for("ms", ms).text(ms)


def _percentiles(rows: list[Row]) -> list[Series]:
    return [
        Series(share, [(parse_time_s(row["start"]), float(row[share])) for row in rows])
        for share in ("p50", "p95", "p99")
    ]


def _message_link(broker_url: str, broker_id: int | None) -> Link | None:
    """Return a link to the trace of a message at the management page."""
    if broker_id is None:
        return None
    return Link("newest message", f"{broker_url}/#/trace?id={int(broker_id)}")


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, int | float | str | Link) else str(value)


def _between(first: str | None, last: str | None) -> str:
    return "nothing died" if first is None else f"from {first[:19]} to {str(last)[:19]} UTC"
