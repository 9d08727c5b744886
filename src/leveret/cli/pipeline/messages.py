"""Commands `leveret pipeline replay`, `load` and `sql`: publish from tables and query messages."""

import sys
import uuid
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import Token, one_line_on_failure, pipeline_command
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output, counted
from leveret.pipeline.environment import Environment
from leveret.pipeline.time_options import parse_time_option

ROWS_SHOWN: Final = 1000
PROMPT: Final = "leveret> "

Queue = Annotated[str | None, typer.Option("--to-queue", help="Publish to this queue.")]
Stream = Annotated[str | None, typer.Option("--to-stream", help="Publish to this stream.")]
Exchange = Annotated[str | None, typer.Option("--to-exchange", help="Publish to this exchange.")]
Key = Annotated[str | None, typer.Option("--routing-key", help="Routing key for all messages.")]
Rate = Annotated[int | None, typer.Option("--rate", min=1, help="Maximum messages per second.")]


@pipeline_command
def replay(
    environment: Environment,
    output: Output,
    stream: Annotated[str, typer.Argument(help="The stream or super stream to replay.")],
    from_lake: Annotated[
        bool, typer.Option("--from-lake", help="Read from the lake (bronze) instead of the broker.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Only messages since this time (ISO 8601, UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only messages before this time (ISO 8601, UTC).")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Only routing keys that match: 'orders.*', 'orders.#'."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Only rows that match this SQL condition.")
    ] = None,
    to_exchange: Exchange = None,
    to_queue: Queue = None,
    routing_key: Key = None,
    rate: Rate = None,
    replay_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Name of this replay. Repeating it with the same name sends no message twice.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Publish the messages. Without --yes they are only counted."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the messages. This is the default.")
    ] = False,
) -> None:
    """Publish messages of a stream or of the lake again. Without --yes, only count them."""
    if (to_exchange is None) == (to_queue is None):
        raise typer.BadParameter("give either --to-exchange or --to-queue")
    since, until = parse_time_option("--since", since), parse_time_option("--until", until)
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import replay as flows

    choice = flows.Selection(stream, from_lake, since, until, key, where)
    target = flows.Target(to_exchange, routing_key, to_queue, rate)
    preflight.require_broker(environment)
    flows.require_source_and_target(environment, choice, target)
    is_once = flows.drops_duplicates(environment, target)
    spark = environment.session("replay")
    frame = flows.select_messages(spark, environment, choice)
    is_done = yes and not dry_run
    name = replay_id or f"replay-{uuid.uuid4().hex[:12]}"
    found: dict[str, Any] = {"id": name, **flows.summarize(frame), "deduplicated": is_once}
    found["replayed"] = is_done
    if is_done:
        flows.replay(frame, environment, target, name)
    output.facts(found)
    if not is_done and not output.as_json:
        typer.echo("nothing was sent; add --yes to send the messages")
    if not is_once:
        text = "the target has no x-deduplication: repeating this id would send all messages again"
        typer.echo(f"leveret pipeline: {text}", err=True)


@pipeline_command
def load(
    environment: Environment,
    output: Output,
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV or JSON-lines files.")],
    to_queue: Queue = None,
    to_stream: Stream = None,
    to_exchange: Exchange = None,
    routing_key: Key = None,
    key_column: Annotated[
        str | None, typer.Option("--key-column", help="Column that holds the routing key.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="parquet, csv or json. Default: from the file name."),
    ] = None,
    infer_types: Annotated[
        bool,
        typer.Option(
            "--infer-types",
            help="Publish values of CSV files as numbers, booleans and times where they look so."
            " Default: as text, with leading zeros.",
        ),
    ] = False,
    rate: Rate = None,
    load_id: Annotated[
        str | None, typer.Option("--id", help="Name of this load. Default: derived from the files.")
    ] = None,
    to_jobs: Annotated[
        str | None,
        typer.Option(
            "--jobs", metavar="NAMESPACE/TOPIC", help="Enqueue the rows as jobs of this topic."
        ),
    ] = None,
    token: Token = None,
) -> None:
    """Publish the rows of files. The body is the column `body`, or the whole row as JSON."""
    if sum(place is not None for place in (to_queue, to_stream, to_exchange, to_jobs)) != 1:
        raise typer.BadParameter("give one of --to-queue, --to-stream, --to-exchange and --jobs")
    if to_jobs is not None:
        if routing_key is not None or key_column is not None:
            raise typer.BadParameter("jobs have no routing keys")
        _enqueue_jobs(environment, output, files, kind, to_jobs, token, rate, load_id, infer_types)
        return
    if to_exchange is not None and routing_key is None and key_column is None:
        routing_key = ""
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import load as flows

    for path in files:
        flows.format_of(path, kind)
    preflight.require_broker(environment)
    if to_queue is not None:
        preflight.require_queue(environment, to_queue)
    elif to_stream is not None:
        preflight.require_stream(environment, to_stream)
    elif to_exchange:
        preflight.require_exchange(environment, to_exchange)
    spark = environment.session("load")
    to = flows.LoadTarget(to_queue, to_stream, to_exchange, routing_key, key_column, rate, load_id)
    done = flows.load(
        spark, environment, files, kind, to, infers_types=infer_types, on_plan=_print_plan
    )
    _print_loaded(output, done, to, load_id or flows.files_id(files))


def _print_loaded(output: Output, done: Any, to: Any, name: str) -> None:
    """Print what `load` published, and what the target had already."""
    new = done.messages - (done.known or 0)
    text = f"published {counted(new, 'message')} to {to.text()}"
    if done.known:
        text += f"; {done.known:,} were there from an earlier run of '{name}' and were skipped"
    found = {"messages": done.messages, "new": new, "known": done.known, "id": name}
    output.done(text, found)
    if done.known is None and to.is_one_queue():
        text = "the target has no x-deduplication: repeating this load would send all rows again"
        typer.echo(f"leveret pipeline: {text}", err=True)


def _print_plan(plan: Any) -> None:
    """Print what `load` takes from a file, and what it leaves out."""
    rows = counted(plan.rows, "row")
    skipped = f"; skips the columns {', '.join(plan.skipped)}" if plan.skipped else ""
    typer.echo(f"{plan.path}: {rows}{skipped}", err=True)


def _enqueue_jobs(
    environment: Environment,
    output: Output,
    files: list[Path],
    kind: str | None,
    namespace_and_topic: str,
    token: str | None,
    rate: int | None,
    load_id: str | None,
    infers_types: bool,
) -> None:
    namespace, _, topic = namespace_and_topic.partition("/")
    if not namespace or not topic:
        raise typer.BadParameter("--jobs needs NAMESPACE/TOPIC, such as payments/refund")
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import load_jobs as flows
    from leveret.pipeline.flows.load import files_id, format_of

    for path in files:
        format_of(path, kind)
    if token is None:  # with a token, the broker's login is not used
        preflight.require_broker(environment)
    spark = environment.session("load")
    name = load_id or files_id(files)
    to = flows.JobsTarget(environment, namespace, topic, token, rate)
    loaded = flows.load_jobs(spark, files, kind, to, name, infers_types=infers_types)
    text = f"enqueued {counted(loaded.new, 'job')}"
    if loaded.known:
        text += f"; {loaded.known:,} already existed"
    output.done(text, {"jobs": loaded.new, "known": loaded.known, "id": name})


@pipeline_command
def sql(
    environment: Environment,
    output: Output,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", "-q", help="Run this query and exit. Default: an interactive prompt."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of rows shown.")
    ] = ROWS_SHOWN,
) -> None:
    """Query streams, queues and the lake in SQL. A queue is queue.NAME and is not consumed; a table
    of the lake is silver.NAME, for example.
    """
    from leveret.pipeline import preflight
    from leveret.pipeline.flows.sql import Tables

    if environment.lake_dir is None:
        preflight.require_broker(environment)
    spark = environment.session("sql")
    tables = Tables(spark, environment, _notice)
    if query is not None:
        _run_query(tables, query, output, limit)
        return
    _print_help(tables)
    for text in _read_statements():
        try:
            with one_line_on_failure():
                _run_query(tables, text, output, limit)
        except typer.Exit:
            continue  # the error was printed; continue with the next statement


def _run_query(tables: Any, query: str, output: Output, limit: int) -> None:
    rows = tables.rows(query, limit + 1)
    if output.as_json:
        print_json(rows[:limit])
    elif rows:
        output.table(rows[:limit], list(rows[0]))
    if len(rows) > limit:
        typer.echo(f"only {limit} rows are shown; use --limit to show more", err=True)


def _notice(text: str) -> None:
    typer.echo(f"leveret pipeline: {text}", err=True)


def _print_help(tables: Any) -> None:
    if sys.stdin.isatty():
        typer.echo("Statements end with ;  \\d lists tables, \\q quits.")
        typer.echo("  ".join(tables.names()))


def _read_statements() -> Any:
    """Yield statements from the prompt or from a pipe."""
    import readline  # noqa: F401  arrow keys and history

    text = ""
    while True:
        try:
            line = input(PROMPT if not text else "      -> ") if sys.stdin.isatty() else input()
        except (EOFError, KeyboardInterrupt):
            break
        if not text and line.strip() in ("\\q", "quit", "exit"):
            return
        text += f"{line}\n"
        if line.strip() == "\\d" or line.rstrip().endswith(";"):
            yield text
            text = ""
    if text.strip():
        yield text
