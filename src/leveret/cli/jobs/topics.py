"""Commands `leveret jobs stats`, `top`, `dead` and `redrive`: watch topics and handle dead jobs."""

import sys
import time
from typing import Annotated, Any, Final

import typer

from leveret.cli.jobs.options import Topic, jobs_command, to_row
from leveret.cli.shared.output import Output, Row
from leveret.clock import Clock
from leveret.job_model import STATES
from leveret.jobs.client.client import Client
from leveret.jobs.client.errors import CallError, NotAllowedError, NotAuthenticatedError
from leveret.jobs.client.topics import TopicStats

_COUNTS: Final = ("enqueued", "handed_out", "acked", "failed", "expired")
_DEAD: Final = ("id", "attempts", "failed_at", "error", "payload")
_RATES: Final = {  # columns of `top` → field of TopicStats
    "in/s": "enqueued",
    "out/s": "handed_out",
    "done/s": "acked",
    "failed/s": "failed",
    "expired/s": "expired",
}
_INTERVAL_S_MAX: Final = 86_400
_WIDTH_WITHOUT_TERMINAL: Final = 200  # characters
_ALL_HELP: Final = "All namespaces that the token gives access to."

AllNamespaces = Annotated[bool, typer.Option("--all", help=_ALL_HELP)]


@jobs_command
def stats(client: Client, output: Output, all_namespaces: AllNamespaces = False) -> None:
    """Count the jobs of each topic by state. Also shows the age of the oldest ready job."""
    found = client.stats(namespace=None if all_namespaces else client.namespace)
    rows = [_topic_row(each, Clock().now_ms()) for each in found]
    output.table(rows, ("namespace", "topic", *STATES, "oldest", *_COUNTS))
    for line in _not_counted(rows):
        typer.echo(f"leveret jobs: {line}", err=True)


def _not_counted(rows: list[Row]) -> list[str]:
    """Return why jobs of some topics are not counted: a line for each shard that is missing."""
    return [f"not counted: {why}" for why in sorted({row["missing"] for row in rows} - {""})]


def _topic_row(stats: TopicStats, now_ms: int) -> Row:
    row = to_row(stats)
    since_s = row.pop("oldest_ready_s")
    row["oldest_ready_ms"] = None if since_s is None else round(since_s * 1000)  # as in the API
    if since_s is not None:
        row["oldest"] = format_age(now_ms - row["oldest_ready_ms"])
    return row


def _by_load(stats: TopicStats) -> tuple[int, str, str]:
    return -(stats.ready or 0) - (stats.leased or 0), stats.namespace, stats.topic


def format_age(ms: int) -> str:
    """Format a duration in one unit."""
    for unit_ms, most, name in ((1000, 60, "s"), (60_000, 60, "min"), (3_600_000, 48, "h")):
        if ms < unit_ms * most:
            return f"{max(ms, 0) // unit_ms} {name}"
    return f"{ms // 86_400_000} d"


@jobs_command
def dead(
    client: Client,
    output: Output,
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of jobs.")] = 100,
    after: Annotated[int, typer.Option("--after", help="Only jobs with a higher id.")] = 0,
    delete: Annotated[
        list[int] | None, typer.Option("--delete", help="Delete the job with this id. Repeatable.")
    ] = None,
    delete_all: Annotated[
        bool, typer.Option("--delete-all", help="Delete all dead jobs of the topic.")
    ] = False,
) -> None:
    """Show or delete dead jobs. A dead job is out of retries; its last error is shown."""
    if delete and delete_all:
        raise typer.BadParameter("give --delete or --delete-all, not both")
    if delete or delete_all:
        count = client.delete_dead(topic, None if delete_all else delete)
        noun = "dead job is" if count == 1 else "dead jobs are"
        output.done(f"{count} {noun} deleted", {"deleted": count})
        return
    rows = [_dead_row(to_row(job)) for job in client.dead(topic, after_id=after, limit=limit)]
    output.table(rows, _DEAD)


def _dead_row(row: Row) -> Row:
    failures: list[dict[str, Any]] = row["failures"]
    if failures:
        row["error"] = str(failures[-1]["error"]).partition("\n")[0]
        row["failed_at"] = failures[-1]["time"]
    return row


@jobs_command
def redrive(
    client: Client,
    output: Output,
    topic: Topic,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids of the jobs. Default: all.")] = None,
) -> None:
    """Make dead jobs ready again and reset their retries."""
    count = client.redrive(topic, ids or None)
    output.done(
        f"{count} {'job is' if count == 1 else 'jobs are'} ready again", {"redriven": count}
    )


@jobs_command
def top(
    client: Client,
    output: Output,
    all_namespaces: AllNamespaces = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between updates.")] = 1.0,
    count: Annotated[
        int,
        typer.Option(
            "--count", min=0, help="Number of updates; 0 = until Ctrl+C, or 1 without a terminal."
        ),
    ] = 0,
) -> None:
    """Watch topics: jobs by state, and rates since the last update."""
    if not 0 <= interval <= _INTERVAL_S_MAX:
        raise typer.BadParameter(f"--interval must be from 0 to {_INTERVAL_S_MAX} seconds")
    namespace = None if all_namespaces else client.namespace
    rates = TopicRates(client, namespace)
    if output.as_json:
        for update in range(count or 1):
            time.sleep(interval if update else 0)
            output.table(rates.rows(), ())
        return
    _show_live(rates, interval, count or int(not sys.stdout.isatty()))


def _show_live(rates: "TopicRates", interval_s: float, count: int) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    updates = 0
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            updates += 1
            try:
                live.update(rates.table(), refresh=True)
            except (NotAllowedError, NotAuthenticatedError):
                raise  # it would be refused again and again
            except CallError as fault:
                live.update(Text(str(fault)), refresh=True)
            if updates == count:
                break
            try:
                time.sleep(interval_s)
            except KeyboardInterrupt:
                break
    if not console.is_terminal:
        console.line()  # Live ends the last line only on a terminal


class TopicRates:
    """Reads the topics again and again, and computes rates from two successive counts."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._client = client
        self._namespace = namespace
        self._before: dict[tuple[str, str], TopicStats] = {}
        self._read_at_s = 0.0

    def rows(self) -> list[Row]:
        """Return a row for each topic, those with the most ready and leased jobs first."""
        now_s, now_ms = time.monotonic(), Clock().now_ms()
        found = self._client.stats(namespace=self._namespace)
        passed_s = max(now_s - self._read_at_s, 0.001)
        rows = []
        for each in sorted(found, key=_by_load):
            before = self._before.get((each.namespace, each.topic), each)
            row = _topic_row(each, now_ms)
            for rate, name in _RATES.items():
                gained = getattr(each, name) - getattr(before, name)
                row[rate] = round(max(gained, 0) / passed_s, 1)
            rows.append(row)
        self._before = {(each.namespace, each.topic): each for each in found}
        self._read_at_s = now_s
        return rows

    def table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        table.add_column("namespace", no_wrap=True)
        table.add_column("topic", no_wrap=True)
        numbers = (*STATES, "oldest", *_RATES)
        for name in numbers:
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        names = ("namespace", "topic", *numbers)
        rows = self.rows()
        for row in rows:
            style = "red" if row["dead"] else None
            cells = (
                "".join(c for c in _shown(row.get(name, "")) if c.isprintable()) for name in names
            )
            table.add_row(*cells, style=style)
        return Group(table, *(Text(line) for line in _not_counted(rows)))


def _shown(value: object) -> str:
    return "?" if value is None else str(value)
