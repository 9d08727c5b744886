"""The Typer application `leveret pipeline` with all its commands."""

import typer

from leveret.cli.pipeline import audit, lake, messages, reports, schedule, shards
from leveret.cli.shared.groups import GROUPS

app = typer.Typer(
    no_args_is_help=True,
    help=GROUPS["pipeline"],
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
