"""`leveret jobs stats`, `top`, `dead` and `redrive`: what an operator looks at, and mends."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from leveret.cli.jobs.asking import Topic, asks_jobs, row_of
from leveret.cli.shared.output import Output, Row
from leveret.clock import Clock
from leveret.jobs.client.client import Client
from leveret.jobs.client.errors import CallError
from leveret.jobs.client.topics import TopicStats

_STATES: Final = ("ready", "scheduled", "leased", "dead")
_COUNTS: Final = ("enqueued", "handed_out", "acked", "failed", "expired")
_DEAD: Final = ("id", "attempts", "failed_at", "error", "payload")
_RATES: Final = {  # of the counts, in the table of `top`
    "in/s": "enqueued",
    "out/s": "handed_out",
    "done/s": "acked",
    "failed/s": "failed",
    "expired/s": "expired",
}
_WIDE: Final = 200  # columns where no terminal limits them
_EVERYWHERE: Final = "Of every namespace that the token covers."

Everywhere = Annotated[bool, typer.Option("--all", help=_EVERYWHERE)]


@asks_jobs
def stats(client: Client, output: Output, everywhere: Everywhere = False) -> None:
    """Show the topics: jobs by state, how long the oldest waits, and what passed."""
    found = client.stats(namespace=None if everywhere else client.namespace)
    rows = [_row(each, Clock().now_ms()) for each in found]
    output.table(rows, ("namespace", "topic", *_STATES, "oldest", *_COUNTS))


def _row(stats: TopicStats, now_ms: int) -> Row:
    row = row_of(stats)
    since_s = row.pop("oldest_ready_s")
    row["oldest_ready_ms"] = None if since_s is None else round(since_s * 1000)  # as in the API
    if since_s is not None:
        row["oldest"] = age(now_ms - row["oldest_ready_ms"])
    return row


def age(ms: int) -> str:
    """How long, in one unit."""
    for unit_ms, most, name in ((1000, 60, "s"), (60_000, 60, "min"), (3_600_000, 48, "h")):
        if ms < unit_ms * most:
            return f"{max(ms, 0) // unit_ms} {name}"
    return f"{ms // 86_400_000} d"


@asks_jobs
def dead(
    client: Client,
    output: Output,
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.")] = 100,
    after: Annotated[int, typer.Option("--after", help="From beyond this id.")] = 0,
    delete: Annotated[
        list[int] | None, typer.Option("--delete", help="Delete this one; repeat it.")
    ] = None,
    delete_all: Annotated[bool, typer.Option("--delete-all", help="Delete all of them.")] = False,
) -> None:
    """Show the jobs whose retries are used up, with their last errors, or delete them."""
    if delete or delete_all:
        count = client.delete_dead(topic, None if delete_all else delete)
        noun = "dead job is" if count == 1 else "dead jobs are"
        output.done(f"{count} {noun} deleted", {"deleted": count})
        return
    rows = [_dead_row(row_of(job)) for job in client.dead(topic, after_id=after, limit=limit)]
    output.table(rows, _DEAD)


def _dead_row(row: Row) -> Row:
    failures: list[dict[str, Any]] = row["failures"]
    if failures:
        row["error"] = str(failures[-1]["error"]).partition("\n")[0]
        row["failed_at"] = failures[-1]["time"]
    return row


@asks_jobs
def redrive(
    client: Client,
    output: Output,
    topic: Topic,
    ids: Annotated[list[int] | None, typer.Argument(help="Only these; none: all.")] = None,
) -> None:
    """Make dead jobs ready again, with fresh retries."""
    count = client.redrive(topic, ids or None)
    output.done(
        f"{count} {'job is' if count == 1 else 'jobs are'} ready again", {"redriven": count}
    )


@asks_jobs
def top(
    client: Client,
    output: Output,
    everywhere: Everywhere = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.")] = 1.0,
    count: Annotated[int, typer.Option("--count", help="Looks, then end; 0: until Ctrl+C.")] = 0,
) -> None:
    """Watch the topics: jobs by state, and rates since the look before."""
    namespace = None if everywhere else client.namespace
    watch = Watch(client, namespace)
    if output.as_json:
        for look in range(count or 1):
            time.sleep(interval if look else 0)
            output.table(watch.rows(), ())
        return
    _live(watch, interval, count)


def _live(watch: "Watch", interval_s: float, count: int) -> None:
    from rich.console import Console
    from rich.live import Live

    looks = 0
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            looks += 1
            try:
                live.update(watch.table(), refresh=True)
            except CallError as fault:
                live.update(str(fault), refresh=True)
            if looks == count:
                return
            try:
                time.sleep(interval_s)
            except KeyboardInterrupt:
                return


class Watch:
    """Topics as they change: rates come from the counts of two looks."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._client = client
        self._namespace = namespace
        self._before: dict[tuple[str, str], TopicStats] = {}
        self._looked_s = 0.0

    def rows(self) -> list[Row]:
        """A row for each topic; those with the most to do first."""
        now_s, now_ms = time.monotonic(), Clock().now_ms()
        found = self._client.stats(namespace=self._namespace)
        passed_s = max(now_s - self._looked_s, 0.001)
        rows = []
        for each in sorted(found, key=lambda t: (-t.ready - t.leased, t.namespace, t.topic)):
            before = self._before.get((each.namespace, each.topic), each)
            row = _row(each, now_ms)
            for rate, name in _RATES.items():
                gained = getattr(each, name) - getattr(before, name)
                row[rate] = round(max(gained, 0) / passed_s, 1)
            rows.append(row)
        self._before = {(each.namespace, each.topic): each for each in found}
        self._looked_s = now_s
        return rows

    def table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("namespace", no_wrap=True)
        table.add_column("topic", no_wrap=True)
        numbers = (*_STATES, "oldest", *_RATES)
        for name in numbers:
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        names = ("namespace", "topic", *numbers)
        for row in self.rows():
            style = "red" if row["dead"] else None
            cells = (
                "".join(c for c in str(row.get(name, "")) if c.isprintable()) for name in names
            )
            table.add_row(*cells, style=style)
        return table
