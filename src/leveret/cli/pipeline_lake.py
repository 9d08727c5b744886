"""`leveret pipeline archive`, `refine`, `compact` and `files`: from streams to the lake."""

import sys
from typing import Annotated

import typer

from leveret.cli.asking import Output
from leveret.cli.pipeline_options import flow, told
from leveret.pipeline.site import Site

Table = Annotated[str, typer.Argument(help="A table of the lake: the name of its stream.")]


@flow
def archive(
    site: Site,
    output: Output,
    stream: Annotated[
        str | None, typer.Argument(help="A stream, or a super stream: all of its partitions.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="The life events of a queue that remembers (x-remember)."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Archive what is there now, and end.")
    ] = False,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Without --once: seconds between batches.")
    ] = 10.0,
    file_mb: Annotated[
        int, typer.Option("--file-mb", min=1, help="About so many MiB of messages in a file.")
    ] = 128,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Go on where retention has taken messages."),
    ] = False,
) -> None:
    """Write a stream into the lake as it is, each message once; run it again to go on."""
    if (stream is None) == (queue is None):
        raise typer.BadParameter("give a stream, or --queue")
    site.lake_path  # noqa: B018  raises before Spark is started
    spark = site.session("archive")
    from leveret.pipeline.flows import archive as flows

    name = stream if stream is not None else flows.remembered_stream(site, str(queue))
    asked = flows.Archiving(name, once, every_s, file_mb * 1024 * 1024, not allow_loss)
    with told() as on_progress:
        done = flows.archive(spark, site, asked, on_progress)
    found = {"stream": name, "rows": done.rows, "lag": done.lag, "seconds": round(done.seconds, 1)}
    output.done(f"archived {done.rows:,} messages of {name}", found)


@flow
def files(
    site: Site,
    output: Output,
    table: Table,
) -> None:
    """List the bronze files that count: for readers other than Spark."""
    from leveret.pipeline.lake import Lake

    found = [str(path) for path in Lake(site.lake_path).bronze_files(table)]
    if output.as_json:
        output.done("", found)
    else:
        sys.stdout.writelines(f"{path}\n" for path in found)
