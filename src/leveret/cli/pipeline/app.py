"""`leveret pipeline …`: the data pipeline on Spark. Commands are in modules by subject."""

import typer

from leveret.cli.pipeline import audit, lake, messages, reports, shards

app = typer.Typer(
    no_args_is_help=True,
    help="Messages as tables: archive, query, replay, load and report, on Spark.",
)

for command in (
    lake.archive,
    lake.refine,
    lake.compact,
    lake.files,
    messages.replay,
    messages.load,
    messages.sql,
    audit.audit,
    reports.deadletters,
    reports.latency,
    reports.jobs_report,
    shards.reshard,
):
    app.command()(command)
