"""`leveret pipeline replay`, `load` and `sql`: from tables to messages and back."""

import sys
import uuid
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import Token, flow, one_line_on_failure
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output
from leveret.pipeline.site import Site
from leveret.pipeline.times import time_of

ROWS_SHOWN: Final = 1000
PROMPT: Final = "leveret> "

Queue = Annotated[str | None, typer.Option("--to-queue", help="Publish to this queue.")]
Stream = Annotated[str | None, typer.Option("--to-stream", help="Publish to this stream.")]
Exchange = Annotated[str | None, typer.Option("--to-exchange", help="Publish to this exchange.")]
Key = Annotated[str | None, typer.Option("--routing-key", help="This key for all messages.")]
Rate = Annotated[int | None, typer.Option("--rate", min=1, help="At most so many a second.")]


@flow
def replay(
    site: Site,
    output: Output,
    stream: Annotated[str, typer.Argument(help="Whose messages: a stream or super stream.")],
    from_lake: Annotated[
        bool, typer.Option("--from-lake", help="From bronze instead of the broker.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on (ISO 8601, UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to this time.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Routing keys by pattern: 'orders.*', 'orders.#'.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="A condition of SQL on the columns.")
    ] = None,
    to_exchange: Exchange = None,
    to_queue: Queue = None,
    routing_key: Key = None,
    rate: Rate = None,
    replay_id: Annotated[
        str | None,
        typer.Option("--id", help="Name of this replay; the same again sends nothing twice."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is counted.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count: the default.")] = False,
) -> None:
    """Publish chosen messages of a stream or of the lake once more; counts them unless --yes."""
    if (to_exchange is None) == (to_queue is None):
        raise typer.BadParameter("give one of --to-exchange and --to-queue")
    since, until = time_of("--since", since), time_of("--until", until)
    from leveret.pipeline import readiness
    from leveret.pipeline.flows import replay as flows

    choice = flows.Choice(stream, from_lake, since, until, key, where)
    target = flows.Target(to_exchange, routing_key, to_queue, rate)
    readiness.require_broker(site)
    flows.require(site, choice, target)
    is_once = flows.drops_duplicates(site, target)
    spark = site.session("replay")
    frame = flows.choose(spark, site, choice)
    is_done = yes and not dry_run
    name = replay_id or f"replay-{uuid.uuid4().hex[:12]}"
    found: dict[str, Any] = {"id": name, **flows.count(frame), "deduplicated": is_once}
    found["replayed"] = is_done
    if is_done:
        flows.replay(frame, site, target, name)
    output.facts(found)
    if not is_done and not output.as_json:
        typer.echo("nothing was sent: add --yes to do it")
    if not is_once:
        text = "the target has no x-deduplication: the same id again would send all again"
        typer.echo(f"leveret pipeline: {text}", err=True)


@flow
def load(
    site: Site,
    output: Output,
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV or JSON lines.")],
    to_queue: Queue = None,
    to_stream: Stream = None,
    to_exchange: Exchange = None,
    routing_key: Key = None,
    key_column: Annotated[
        str | None, typer.Option("--key-column", help="A column with the routing keys.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="parquet, csv or json; else by the name.")
    ] = None,
    rate: Rate = None,
    load_id: Annotated[
        str | None, typer.Option("--id", help="Name of this load; else made of the files.")
    ] = None,
    to_jobs: Annotated[
        str | None,
        typer.Option("--jobs", metavar="NAMESPACE/TOPIC", help="Put in jobs of this topic."),
    ] = None,
    token: Token = None,
) -> None:
    """Publish the rows of files: a column `body` as it is, any other row as a JSON object."""
    if sum(place is not None for place in (to_queue, to_stream, to_exchange, to_jobs)) != 1:
        raise typer.BadParameter("give one of --to-queue, --to-stream, --to-exchange and --jobs")
    if to_jobs is not None:
        if routing_key is not None or key_column is not None:
            raise typer.BadParameter("jobs have no routing keys")
        _load_jobs(site, output, files, kind, to_jobs, token, rate, load_id)
        return
    if to_exchange is not None and routing_key is None and key_column is None:
        routing_key = ""
    from leveret.pipeline import readiness
    from leveret.pipeline.flows import load as flows

    for path in files:
        flows.format_of(path, kind)
    readiness.require_broker(site)
    if to_queue is not None:
        readiness.require_queue(site, to_queue)
    elif to_stream is not None:
        readiness.require_stream(site, to_stream)
    elif to_exchange:
        readiness.require_exchange(site, to_exchange)
    spark = site.session("load")
    to = flows.Loading(to_queue, to_stream, to_exchange, routing_key, key_column, rate, load_id)
    count = flows.load(spark, site, files, kind, to)
    found = {"messages": count, "id": load_id or flows.id_of(files)}
    output.done(f"published {count:,} messages", found)


def _load_jobs(
    site: Site,
    output: Output,
    files: list[Path],
    kind: str | None,
    place: str,
    token: str | None,
    rate: int | None,
    load_id: str | None,
) -> None:
    namespace, _, topic = place.partition("/")
    if not namespace or not topic:
        raise typer.BadParameter("--jobs is a namespace and a topic: payments/refund")
    from leveret.pipeline import readiness
    from leveret.pipeline.flows import load_jobs as flows
    from leveret.pipeline.flows.load import format_of, id_of

    for path in files:
        format_of(path, kind)
    if token is None:  # else it is not the login that counts
        readiness.require_broker(site)
    spark = site.session("load")
    name = load_id or id_of(files)
    to = flows.JobsTarget(site, namespace, topic, token, rate)
    loaded = flows.load_jobs(spark, files, kind, to, name)
    text = f"put in {loaded.new:,} {'job' if loaded.new == 1 else 'jobs'}"
    if loaded.known:
        text += f"; {loaded.known:,} were there already"
    output.done(text, {"jobs": loaded.new, "known": loaded.known, "id": name})


@flow
def sql(
    site: Site,
    output: Output,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Run this and end; else a prompt.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows shown.")] = ROWS_SHOWN,
) -> None:
    """Ask SQL of streams, queues (queue.NAME, without consuming) and the lake (silver.NAME …)."""
    from leveret.pipeline import readiness
    from leveret.pipeline.flows.sql import Tables

    if site.lake_dir is None:
        readiness.require_broker(site)
    spark = site.session("sql")
    tables = Tables(spark, site)
    if query is not None:
        _answer(tables, query, output, limit)
        return
    _help(tables)
    for text in _statements():
        try:
            with one_line_on_failure():
                _answer(tables, text, output, limit)
        except typer.Exit:
            continue  # it was told why; the prompt goes on


def _answer(tables: Any, query: str, output: Output, limit: int) -> None:
    rows = tables.rows(query, limit + 1)
    if output.as_json:
        print_json(rows[:limit])
    elif rows:
        output.table(rows[:limit], list(rows[0]))
    if len(rows) > limit:
        typer.echo(f"only {limit} rows are shown: --limit shows more", err=True)


def _help(tables: Any) -> None:
    if sys.stdin.isatty():
        typer.echo("Statements end with ;  \\d lists tables, \\q ends.")
        typer.echo("  ".join(tables.names()))


def _statements() -> Any:
    """Statements from the prompt, or from a pipe, up to its end."""
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
