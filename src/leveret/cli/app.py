"""The Typer application `leveret`: all commands, the group that was called, or names alone.

Each command group is imported only when it is needed, so that a command does not wait for the
imports of the event bus or the load generator. `leveret --help` needs no group at all. `serve` is
here only for the help text: main.py runs it without this module.
"""

import os
from typing import Annotated, Final

import typer

from leveret.build_info import describe
from leveret.cli.shared.groups import GROUPS, PERF

_HELP: Final = (
    "Leveret: a message broker for RabbitMQ's clients, with jobs, an event bus and a pipeline."
)


def make_app(first_word: str) -> typer.Typer:
    """Return the application for a command line that begins with `first_word`.

    It holds one group if the word names a group, and all commands otherwise.
    """
    app = _make_root()
    has_all = first_word not in (*GROUPS, "perf")
    for name in GROUPS if has_all else {first_word}.intersection(GROUPS):
        app.add_typer(_import_group(name), name=name)
    if has_all or first_word == "perf":
        _add_perf(app)
    if has_all:
        _add_serve(app)
    return app


def make_overview() -> typer.Typer:
    """Return an application that knows the names of all commands, and no command itself.

    It serves a command line that calls none: `--help`, `--version`, or a name that is misspelt.
    """
    app = _make_root()
    for name, text in GROUPS.items():
        group = typer.Typer(help=text)
        group.callback()(_show_nothing)
        app.add_typer(group, name=name)
    app.command("perf", help=PERF)(_show_nothing)
    _add_serve(app)
    return app


def is_overview(first_word: str) -> bool:
    """Return True if a command line that begins with this word calls no command."""
    return first_word not in (*GROUPS, "perf") and "_LEVERET_COMPLETE" not in os.environ


def _make_root() -> typer.Typer:
    # Plain help: Rich would only draw boxes, and its import takes more than half of `--help`.
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=_HELP
    )
    app.callback()(leveret)
    return app


def _add_serve(app: typer.Typer) -> None:
    own_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(context_settings=own_arguments, add_help_option=False)(serve)


def _show_nothing() -> None:
    """Stand for a command that is not called."""


def _import_group(name: str) -> typer.Typer:
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
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version, and whether it is compiled.",
        ),
    ] = False,
) -> None:
    """Define the options that come before a command."""


def serve(context: typer.Context) -> None:
    """Run the broker. `leveret serve --help` lists the options."""
    from leveret.cli.serve import serve as run_serve

    raise typer.Exit(run_serve(context.args))
