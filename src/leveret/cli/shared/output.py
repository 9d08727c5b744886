"""Decorators for commands that ask a running broker, and the printing of their results.

`@broker_command` turns a function with the parameters `(ManagementClient, Output, *options)` into a
command. It adds `--url`, `--user`, `--password` and `--json`, creates client and output, and
turns an error into one line and exit code 1. `Output` prints tables, or JSON with `--json`.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import typer

from leveret.cli.shared.broker_address import DEFAULT_URL
from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.options import (
    Json,
    Password,
    Url,
    User,
    one_line_on_failure,
    print_json,
)

_WIDTH_WITHOUT_TERMINAL: Final = 1000  # characters
# Parameters that `@broker_command` adds: name → (type, default).
SHARED_OPTIONS: Final = {
    "url": (Url, DEFAULT_URL),
    "user": (User, None),
    "password": (Password, None),
    "as_json": (Json, False),
}

# Shorter column headings for some fields.
_HEADINGS: Final = {
    "messages_ready": "ready",
    "messages_unacknowledged": "unacked",
    "messages_unconfirmed": "unconfirmed",
    "messages_scheduled": "scheduled",
    "messages_damaged": "damaged",
    "holder.connection": "connection",
    "holder.channel": "channel",
    "holder.consumer_tag": "consumer",
    "queue.vhost": "vhost",
    "queue.name": "queue",
    "channel_details.name": "channel",
}
_TIME_SUFFIXES: Final = ("connected_at", "_at_ms", "time_ms")

Row = dict[str, Any]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 message", "2,000 messages"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Output:
    """Prints the result of a command, as text or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def table(self, rows: Sequence[Row], columns: Iterable[str]) -> None:
        """Print rows as a table. A column is a field name; `a.b` is a field of a nested object."""
        if self.as_json:
            print_json(list(rows))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        names = list(columns)
        for name in names:
            is_number = bool(rows) and all(_is_number(field_at(row, name)) for row in rows)
            table.add_column(_heading(name), justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            style = "red" if row.get("messages_damaged") else None
            table.add_row(*(_shown(field_at(row, name), name) for name in names), style=style)
        # Without a terminal: no colour, and wide enough for every cell, because programs read it.
        width = None if sys.stdout is not None and sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
        console = Console(highlight=False, markup=False, width=width)
        measured = console.measure(table).maximum
        console.print(table, width=max(measured, 1), crop=False, overflow="ignore")

    def facts(self, found: Row) -> None:
        """Print one object, a line for each field."""
        if self.as_json:
            print_json(found)
            return
        width = max((len(_heading(name)) for name in found), default=0)
        for name, value in found.items():
            typer.echo(f"{_heading(name):<{width}}  {_shown(value, name)}")

    def done(self, text: str, found: object = None) -> None:
        """Print that the command succeeded: `text`, or `found` as JSON."""
        if self.as_json:
            print_json(found if found is not None else {"done": text})
        else:
            typer.echo(text)


def broker_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first two parameters are the client and the output."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        url, user, password = given.pop("url"), given.pop("user"), given.pop("password")
        output = Output(given.pop("as_json"))
        with one_line_on_failure():
            function(ManagementClient(url, user, password), output, **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED_OPTIONS.items()
    ]
    return set_parameters(command, function, [*own, *shared])


def with_options_of(
    gather: Callable[..., Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `gather` to a command and pass their result as its third parameter."""
    options = inspect.signature(gather, eval_str=True).parameters

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        first, second, _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def command(broker: ManagementClient, output: Output, **given: Any) -> None:
            gathered = gather(**{name: given.pop(name) for name in options})
            function(broker, output, gathered, **given)

        return set_parameters(command, function, [first, second, *options.values(), *own])

    return decorate


def set_parameters(
    command: Callable[..., None],
    function: Callable[..., None],
    parameters: list[inspect.Parameter],
) -> Callable[..., None]:
    """Give `command` the name and docstring of `function` and these parameters, for Typer."""
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    command.__annotations__ = {each.name: each.annotation for each in named}
    vars(command)["__signature__"] = inspect.Signature(named)
    return command


def field_at(row: Row, name: str) -> Any:
    """Return the field at a path such as `a.b`, or None."""
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _heading(name: str) -> str:
    """Return the heading of a field. A time loses its unit, because a date is shown."""
    if name.endswith(_TIME_SUFFIXES):
        return name.removesuffix("_ms")
    return _HEADINGS.get(name, name)


def format_time(time_ms: int) -> str:
    """Format a time in milliseconds since 1970 as date and time in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object, name: str = "") -> str:
    """Format a value. A field whose name ends in one of `_TIME_SUFFIXES` is a time in ms."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith(_TIME_SUFFIXES) and value > 0:
        return format_time(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
        return ",".join(_shown(each) for each in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={_nested(each)}" for key, each in value.items())
    if isinstance(value, list):
        return _nested(value)
    return "".join(
        c if c.isprintable() else "�" for c in str(value)
    )  # a name may contain escape sequences


def _nested(value: object) -> str:
    """Format a value inside another value. Lists and objects become JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _shown(value)
