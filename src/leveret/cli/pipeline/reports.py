"""Commands `leveret pipeline deadletters`, `latency` and `jobs-report`: tables and chart pages."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import UNITS_S, Token, pipeline_command
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output
from leveret.clock import Clock
from leveret.errors import ConfigError
from leveret.lake.layout import replace_file
from leveret.pipeline.environment import Environment, without_login
from leveret.pipeline.time_options import parse_time_option

WINDOWS_S: Final = (1, 31 * 86_400)
REPORTS: Final = "reports"

Since = Annotated[
    str | None, typer.Option("--since", help="Only messages since this time (ISO 8601, UTC).")
]
Until = Annotated[
    str | None, typer.Option("--until", help="Only messages before this time (ISO 8601, UTC).")
]
Html = Annotated[
    Path | None, typer.Option("--html", help="Also write a page with charts to this file.")
]
Top = Annotated[
    int, typer.Option("--top", min=1, max=1000, help="Maximum number of rows per table.")
]


@pipeline_command
def deadletters(
    environment: Environment,
    output: Output,
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            help="Dead-letter queues; they are not changed. Default: all that are found."
        ),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option("--stream", help="A stream with dead letters or life events. Repeatable."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A lake table with dead letters or life events. Repeatable."),
    ] = None,
    since: Since = None,
    until: Until = None,
    top: Top = 10,
    html: Html = None,
) -> None:
    """Count dead letters. Groups them by queue, reason, error, routing key, service and hour."""
    since, until = parse_time_option("--since", since), parse_time_option("--until", until)
    from leveret.pipeline.flows import deadletters as flows

    named = flows.Sources(list(queues or ()), list(streams or ()), list(tables or ()))
    flows.require_sources(environment, named)
    sources = named if named.names() else flows.Sources(flows.dead_letter_queues(environment))
    spark = environment.session("deadletters")
    found = flows.report(flows.read_dead_letters(spark, environment, sources, since, until), top)
    found = {"sources": sources.names(), **found}
    if html is not None:
        from leveret.pipeline.report_pages import dead_letter_page

        _write(html, dead_letter_page(found, sources.names(), without_login(environment.url)))
    _show(output, found, ("sources", "letters", "first", "last", "retries_max", *_AGE_FIELDS))
    if not output.as_json and found["letters"]:
        for name, rows in found["by"].items():
            _table(output, f"by {name.replace('_', ' ')}", rows, ["value", "letters", "retries"])
        worst = ["queue", "reason", "error_class", "routing_key", "service", "letters", "error"]
        _table(output, "top offenders", found["offenders"], worst)
    _print_chart_path(html)


_AGE_FIELDS: Final = ("alive_ms_p50", "alive_ms_p95")


@pipeline_command
def latency(
    environment: Environment,
    output: Output,
    stream: Annotated[
        str | None, typer.Argument(help="The stream with the life events of queues (x-remember).")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="Only this queue. Its stream is found automatically."),
    ] = None,
    from_lake: Annotated[
        bool, typer.Option("--from-lake", help="Read from the lake (bronze) instead of the broker.")
    ] = False,
    window: Annotated[
        str, typer.Option("--window", help="Length of a time window: 30s, 5m, 1h, 1d.")
    ] = "1h",
    since: Since = None,
    until: Until = None,
    html: Html = None,
) -> None:
    """Show percentiles of latency. It is the time in queue, in flight and until the ack."""
    window_s = _parse_window(window)
    if stream is None and (queue is None or from_lake):
        raise typer.BadParameter("give the stream with the life events, or --queue")
    since, until = parse_time_option("--since", since), parse_time_option("--until", until)
    from leveret.pipeline.flows import latency as flows

    name = flows.find_stream(environment, stream, queue, is_from_lake=from_lake)
    spark = environment.session("latency")
    asked = flows.LatencyRequest(name, window_s, from_lake, since, until, queue)
    found = {
        "stream": name,
        **flows.report(flows.read_durations(spark, environment, asked), window_s),
    }
    if html is not None:
        from leveret.pipeline.report_pages import latency_page

        _write(html, latency_page(found, name))
    if output.as_json:
        print_json(found)
    else:
        measures = ["kind", "count", "p50", "p95", "p99", "max"]
        _table(output, "by queue, in ms", found["queues"], ["queue", *measures])
        if found["services"]:
            _table(output, "by service", found["services"], ["queue", "service", *measures])
        _table(output, f"by {window}", found["windows"], ["start", "queue", *measures])
    _print_chart_path(html)


@pipeline_command
def jobs_report(
    environment: Environment,
    output: Output,
    postgres: Annotated[
        list[str] | None,
        typer.Option(
            "--jobs-postgres",
            envvar="LEVERET_JOBS_POSTGRES",
            metavar="DSN",
            help="PostgreSQL shard of the jobs service, in order. Default: ask the service.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace.")
    ] = None,
    token: Token = None,
    top: Top = 20,
    html: Html = None,
) -> None:
    """Show jobs by topic and state. Also shows their age, retries, and the errors of dead jobs."""
    now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
    dsns = [dsn for given in postgres or () for dsn in given.split()]
    if dsns:
        spark = environment.session("jobs-report")
        from leveret.pipeline.flows import jobs_report as flows

        found = flows.report(flows.read_job_states(spark, dsns, namespace, now), top, now)
        place = f"{len(dsns)} PostgreSQL shards"
    else:
        from leveret.pipeline import preflight
        from leveret.pipeline.flows import jobs_report as flows
        from leveret.pipeline.jobs_access import JobsAccess

        if token is None:  # with a token, the broker's login is not used
            preflight.require_broker(environment)
        access = JobsAccess(environment, token, namespace or "default")
        found = flows.report_over_http(access.client(), namespace, top, now)
        access.close()
        place = f"From the jobs service, {now:%Y-%m-%d %H:%M} UTC"
    if html is not None:
        from leveret.pipeline.report_pages import jobs_page

        _write(html, jobs_page(found, place))
    _show(output, found, ("ready", "scheduled", "leased", "dead"))
    if not output.as_json:
        columns = ["namespace", "topic", "ready", "scheduled", "leased", "dead", "oldest_ready_s"]
        columns += ["retries", "failures"] if dsns else ["failures"]
        _table(output, "by topic", found["topics"], columns)
        if found["errors"]:
            columns = ["namespace", "topic", "jobs", "last", "error"]
            _table(output, "dead jobs by their last error", found["errors"], columns)
    _print_chart_path(html)


@pipeline_command
def report(
    environment: Environment,
    output: Output,
    day: Annotated[
        datetime | None,
        typer.Option("--day", formats=["%Y-%m-%d"], help="Day (UTC). Default: today, up to now."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder of the reports. Default: `reports` in the lake."),
    ] = None,
    token: Token = None,
) -> None:
    """Write all reports of a day as one page. Also writes a list of the days that are kept."""
    now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
    folder = to.absolute() if to is not None else environment.lake_path / REPORTS
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import report as flows

    preflight.require_writable(folder)
    preflight.require_broker(environment)
    spark = environment.session("report")
    chosen = now.date() if day is None else day.date()
    done = flows.report(spark, environment, flows.ReportRequest(chosen, folder, now, token))
    found = {"path": str(done.path), "left_out": done.left_out}
    output.done(f"report written to {done.path}", found)
    for name, why in done.left_out.items():
        typer.echo(f"leveret pipeline: without {name}: {why}", err=True)


def _parse_window(text: str) -> int:
    """Parse a time window such as 5m into seconds. Raise ConfigError."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 10) or unit not in UNITS_S:
        raise ConfigError("a window is a number followed by s, m, h or d, such as 5m")
    found = int(number) * UNITS_S[unit]
    if not WINDOWS_S[0] <= found <= WINDOWS_S[1]:
        raise ConfigError("a window must be between 1s and 31d")
    return found


def _show(output: Output, found: dict[str, Any], names: tuple[str, ...]) -> None:
    if output.as_json:
        print_json(found)
    else:
        output.facts({name: found[name] for name in names if found[name] is not None})


def _table(output: Output, title: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    typer.echo(f"\n{title}")
    output.table(rows, columns)


def _write(path: Path, page: Any) -> None:
    from leveret.charts.page import page_html

    replace_file(path.absolute(), page_html(page))


def _print_chart_path(path: Path | None) -> None:
    if path is not None:
        typer.echo(f"charts written to {path}", err=True)
