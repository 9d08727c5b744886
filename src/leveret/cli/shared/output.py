"""Commands that ask a running broker: what they share.

`@asks` turns a function of a `Broker`, an `Output` and its own options into a command: it adds
`--url`, `--user`, `--password` and `--json`, makes the two, and lets whatever goes wrong end in one
line and exit code 1. An `Output` prints tables for people, or JSON for programs.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import typer

from leveret.cli.shared.management import Broker
from leveret.cli.shared.options import (
    DEFAULT_URL,
    Json,
    Password,
    Url,
    User,
    one_line_on_failure,
    print_json,
)

_UNLIMITED: Final = 1000  # columns where no terminal limits them
# Parameters that every such command has.
SHARED: Final = {
    "url": (Url, DEFAULT_URL),
    "user": (User, None),
    "password": (Password, None),
    "as_json": (Json, False),
}

# Fields that have a shorter name in tables.
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
    "time_ms": "time",
}
_MOMENTS: Final = ("connected_at", "_at_ms", "time_ms")

Row = dict[str, Any]


class Output:
    """Prints what a command found."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def table(self, rows: Sequence[Row], columns: Iterable[str]) -> None:
        """Rows of JSON objects; a column is a field, `a.b` a field in a field."""
        if self.as_json:
            print_json(list(rows))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        names = list(columns)
        for name in names:
            is_number = bool(rows) and all(_is_number(field(row, name)) for row in rows)
            heading = _HEADINGS.get(name, name)
            table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            style = "red" if row.get("messages_damaged") else None
            table.add_row(*(_shown(field(row, name), name) for name in names), style=style)
        # Without colour where nobody looks, and as wide as it has to be: programs read it too.
        width = None if sys.stdout is not None and sys.stdout.isatty() else _UNLIMITED
        console = Console(highlight=False, markup=False, width=width)
        measured = console.measure(table).maximum
        console.print(table, width=max(measured, 1), crop=False, overflow="ignore")

    def facts(self, found: Row) -> None:
        """One JSON object: a line for each field."""
        if self.as_json:
            print_json(found)
            return
        width = max((len(name) for name in found), default=0)
        for name, value in found.items():
            typer.echo(f"{name:<{width}}  {_shown(value, name)}")

    def done(self, text: str, found: object = None) -> None:
        """What was done: a sentence, or JSON."""
        if self.as_json:
            print_json(found if found is not None else {"done": text})
        else:
            typer.echo(text)


def asks(function: Callable[..., None]) -> Callable[..., None]:
    """A command of a function whose first two parameters are the broker and the output."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        url, user, password = given.pop("url"), given.pop("user"), given.pop("password")
        output = Output(given.pop("as_json"))
        with one_line_on_failure():
            function(Broker(url, user, password), output, **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED.items()
    ]
    return with_parameters(command, function, [*own, *shared])


def takes(gather: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command's third parameter the options of `gather`, and what that makes of them."""
    options = inspect.signature(gather, eval_str=True).parameters

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        first, second, _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def command(broker: Broker, output: Output, **given: Any) -> None:
            gathered = gather(**{name: given.pop(name) for name in options})
            function(broker, output, gathered, **given)

        return with_parameters(command, function, [first, second, *options.values(), *own])

    return decorate


def with_parameters(
    command: Callable[..., None],
    function: Callable[..., None],
    parameters: list[inspect.Parameter],
) -> Callable[..., None]:
    """The command under the name of a function, with these parameters, by keyword for Typer."""
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    command.__annotations__ = {each.name: each.annotation for each in named}
    vars(command)["__signature__"] = inspect.Signature(named)
    return command


def field(row: Row, name: str) -> Any:
    """A field by its path; None where there is none."""
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def moment(time_ms: int) -> str:
    """A time in milliseconds since 1970, as people write it, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object, name: str = "") -> str:
    """A value for people. Moments are fields whose names say so, in milliseconds since 1970."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith(_MOMENTS) and value > 0:
        return moment(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
        return ",".join(_shown(each) for each in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={_nested(each)}" for key, each in value.items())
    if isinstance(value, list):
        return _nested(value)
    return "".join(c if c.isprintable() else "�" for c in str(value))  # a name may hold escapes


def _nested(value: object) -> str:
    """A value inside another: what has parts of its own is shown as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _shown(value)
