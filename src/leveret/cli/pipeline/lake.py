"""Commands `leveret pipeline archive`, `refine`, `compact` and `files`: fill the data lake."""

import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.pipeline.options import lake_command, pipeline_command, show_progress
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output, counted
from leveret.lake.delta import DELTA
from leveret.lake.layout import BRONZE, CURSOR, Lake, table_name
from leveret.pipeline.environment import Environment

Table = Annotated[
    str, typer.Argument(help="Name of the lake table, which is the name of its stream.")
]


class Format(StrEnum):
    """Formats of bronze tables."""

    PARQUET = "parquet"
    DELTA = DELTA


@pipeline_command
def archive(
    environment: Environment,
    output: Output,
    stream: Annotated[
        str | None, typer.Argument(help="A stream, or a super stream with all its partitions.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", help="Archive the life events of this queue (it needs x-remember)."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Archive the messages that exist now, then stop.")
    ] = False,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Without --once: seconds between batches.")
    ] = 10.0,
    file_mb: Annotated[
        int, typer.Option("--file-mb", min=1, help="Approximate file size in MiB.")
    ] = 128,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help="Continue if retention has deleted messages that were not archived.",
        ),
    ] = False,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of a new table. Default: parquet."),
    ] = None,
    cursor: Annotated[
        str,
        typer.Option("--cursor", help="Name under which the broker shows the position and lag."),
    ] = CURSOR,
) -> None:
    """Archive a stream in the lake, each message once. Run it again to continue."""
    if (stream is None) == (queue is None):
        raise typer.BadParameter("give either a stream or --queue")
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import archive as flows

    preflight.require_writable(environment.lake_path)
    preflight.require_broker(environment)
    if queue is not None:
        preflight.require_queue(environment, queue)
    name = stream if stream is not None else flows.life_event_stream(environment, str(queue))
    preflight.require_stream(environment, name)
    folder = Lake(environment.lake_path).folder(BRONZE, table_name(environment.vhost, name))
    wanted = format_.value if format_ is not None else None
    flows.require_format(folder, wanted)
    spark = environment.session("archive")
    asked = flows.ArchiveRequest(
        stream=name,
        is_once=once,
        every_s=every_s,
        file_bytes=file_mb * 1024 * 1024,
        fails_on_loss=not allow_loss,
        format=wanted,
        cursor=cursor,
    )
    with show_progress() as on_progress:
        done = flows.archive(spark, environment, asked, on_progress)
    found = {"stream": name, "rows": done.rows, "lag": done.lag, "seconds": round(done.seconds, 1)}
    output.done(f"archived {counted(done.rows, 'message')} of {name}", found)


@pipeline_command
def refine(
    environment: Environment,
    output: Output,
    table: Table,
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="Schema of the JSON, such as 'id bigint, name string'."),
    ] = None,
    avro: Annotated[
        Path | None, typer.Option("--avro", help="Decode Avro bodies by this schema file (.avsc).")
    ] = None,
    protobuf: Annotated[
        str | None,
        typer.Option(
            "--protobuf",
            metavar="FILE:MESSAGE",
            help="Decode Protobuf bodies: a file of protoc --descriptor_set_out, and a message.",
        ),
    ] = None,
    show_schema: Annotated[
        bool,
        typer.Option("--show-schema", help="Only show the schema of the messages. Write nothing."),
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Refine all dates, not only the changed ones.")
    ] = False,
) -> None:
    """Decode bronze tables into silver, and aggregate into gold. Bad messages go to quarantine."""
    if avro is not None and protobuf is not None:
        raise typer.BadParameter("give either --avro or --protobuf")
    lake = Lake(environment.lake_path)
    name = table_name(environment.vhost, table)
    lake.require(BRONZE, name)
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import refine as flows
    from leveret.pipeline.payload_codecs import read_codec

    preflight.require_writable(lake.path)
    codec = read_codec(avro, protobuf)
    spark = environment.session("refine")
    if show_schema:
        found = flows.infer_schema(spark, lake, name, codec)
        fields = [{"field": f.name, "type": f.dataType.simpleString()} for f in found.fields]
        output.table(fields, ["field", "type"])
        return
    done = flows.refine(spark, lake, name, schema, all_, codec)
    refined = f"{counted(done.messages, 'message')} of {counted(done.dates, 'date')}"
    text = f"refined {refined}; {done.bad:,} bad"
    for reason, count in sorted(done.faults.items(), key=lambda each: -each[1]):
        text += f"\n  {count:,} {reason}"
    if done.skipped:
        text += f"\n{done.skipped:,} messages of other content types are in bronze only"
    output.done(text, vars(done))


@pipeline_command
def compact(
    environment: Environment,
    output: Output,
    table: Table,
    file_mb: Annotated[
        int, typer.Option("--file-mb", min=1, help="Size of the merged files in MiB.")
    ] = 128,
    keep_h: Annotated[
        float,
        typer.Option(
            "--keep-hours",
            min=0,
            help="Delete source files this many hours after they were merged.",
        ),
    ] = 24.0,
    delete_before: Annotated[
        datetime | None,
        typer.Option(
            "--delete-before",
            formats=["%Y-%m-%d"],
            help="Delete the messages of all dates before this one. Only for Delta tables.",
        ),
    ] = None,
) -> None:
    """Merge small bronze files. Also works while archive runs. Deletes files merged a day ago."""
    lake = Lake(environment.lake_path)
    name = table_name(environment.vhost, table)
    lake.require(BRONZE, name)
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import compact as flows

    preflight.require_writable(lake.path)
    spark = environment.session("compact")

    oldest = delete_before.date() if delete_before is not None else None
    done = flows.compact(spark, lake, name, file_mb * 1024 * 1024, keep_h * 3600, oldest)
    merged = f"{counted(done.files_before, 'file')} became {done.files_after}"
    text = f"{merged}: {counted(done.messages, 'message')} merged, {done.deleted} old files deleted"
    if done.leftovers:
        text += f", and {done.leftovers} files that killed batches had left"
    output.done(text, vars(done))


@lake_command
def files(environment: Environment, output: Output, table: Table) -> None:
    """List the current bronze files, for readers other than Spark."""
    found = Lake(environment.lake_path).bronze_files(table_name(environment.vhost, table))
    if output.as_json:
        print_json([str(path) for path in found])
    else:
        sys.stdout.writelines(f"{path}\n" for path in found)
