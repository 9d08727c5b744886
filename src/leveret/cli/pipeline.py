"""`leveret pipeline …`: the data pipeline on Spark. Commands are in modules by subject."""

import typer

from leveret.cli import pipeline_lake

app = typer.Typer(
    no_args_is_help=True, help="Messages as tables: archive, query, replay and load, on Spark."
)

for command in (
    pipeline_lake.archive,
    pipeline_lake.files,
):
    app.command()(command)
