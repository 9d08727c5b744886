"""The Typer application `leveret pipeline` with all its commands."""

import typer

from leveret.cli.pipeline import audit, lake, messages, reports, schedule, shards

app = typer.Typer(
    no_args_is_help=True,
    help="Archive, query, replay, load and report messages with Spark.",
)

for command in (
    lake.archive,
    lake.refine,
    lake.compact,
    lake.files,
    schedule.run,
    schedule.status,
    messages.replay,
    messages.load,
    messages.sql,
    audit.audit,
    reports.deadletters,
    reports.latency,
    reports.jobs_report,
    reports.report,
    shards.reshard,
):
    app.command()(command)
