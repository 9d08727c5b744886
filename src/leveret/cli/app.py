"""The Typer application `leveret`; each group of commands is a module that it adds here.

`serve` is listed for the help text; main.py has usually run it before this module is imported.
"""

from typing import Annotated

import typer

from leveret.build_info import describe
from leveret.cli import bus, configuration, ctl, jobs_commands, pipeline
from leveret.cli.perf import perf
from leveret.cli.serve import serve as run_serve

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Leveret, a message broker that RabbitMQ's clients cannot tell from RabbitMQ.",
)
app.add_typer(ctl.app, name="ctl")
app.add_typer(configuration.app, name="config")
app.add_typer(jobs_commands.app, name="jobs")
app.add_typer(bus.app, name="bus")
app.add_typer(pipeline.app, name="pipeline")
app.command()(perf)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(describe())
        raise typer.Exit


@app.callback()
def leveret(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show version and form."
        ),
    ] = False,
) -> None:
    """Options that stand before a command."""


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
)
def serve(context: typer.Context) -> None:
    """Run the broker (leveret serve --help lists its options)."""
    raise typer.Exit(run_serve(context.args))
