"""The Typer application `leveret`, whole or with the one group of commands that is called.

Each group of commands is a module that is added here, and imported only where it is needed: a
command that is called pays for its own group, not for the event bus and the load generator.
`serve` is listed for the help text; main.py has usually run it before this module is imported.
"""

from typing import Annotated, Final

import typer

from leveret.build_info import describe

GROUPS: Final = ("ctl", "config", "jobs", "bus", "pipeline")


def app_for(word: str) -> typer.Typer:
    """The application for a command line that begins with `word`; all of it unless it is known."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Leveret, a message broker that RabbitMQ's clients cannot tell from RabbitMQ.",
    )
    app.callback()(leveret)
    is_whole = word not in (*GROUPS, "perf")
    for name in GROUPS if is_whole else {word}.intersection(GROUPS):
        app.add_typer(_group(name), name=name)
    if is_whole or word == "perf":
        _add_perf(app)
    if is_whole:
        own_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(context_settings=own_arguments, add_help_option=False)(serve)
    return app


def _group(name: str) -> typer.Typer:
    match name:
        case "ctl":
            from leveret.cli.ctl.app import app
        case "config":
            from leveret.cli.config import app
        case "jobs":
            from leveret.cli.jobs.app import app
        case "bus":
            from leveret.cli.bus.app import app
        case _:
            from leveret.cli.pipeline.app import app
    return app


def _add_perf(app: typer.Typer) -> None:
    from leveret.cli.perf import perf

    app.command()(perf)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(describe())
        raise typer.Exit


def leveret(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show version and form."
        ),
    ] = False,
) -> None:
    """Options that stand before a command."""


def serve(context: typer.Context) -> None:
    """Run the broker (leveret serve --help lists its options)."""
    from leveret.cli.serve import serve as run_serve

    raise typer.Exit(run_serve(context.args))
