"""`leveret pipeline …`: the data pipeline on Spark. Commands are in modules by subject."""

import typer

from leveret.cli import (
    pipeline_audit,
    pipeline_lake,
    pipeline_messages,
    pipeline_reports,
    pipeline_shards,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Messages as tables: archive, query, replay, load and report, on Spark.",
)

for command in (
    pipeline_lake.archive,
    pipeline_lake.refine,
    pipeline_lake.compact,
    pipeline_lake.files,
    pipeline_messages.replay,
    pipeline_messages.load,
    pipeline_messages.sql,
    pipeline_audit.audit,
    pipeline_reports.deadletters,
    pipeline_reports.latency,
    pipeline_reports.jobs_report,
    pipeline_shards.reshard,
):
    app.command()(command)
