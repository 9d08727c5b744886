"""Commands that ask a running broker: what they share.

`@asks` turns a function of a `Broker`, an `Output` and its own options into a command: it adds
`--url`, `--user`, `--password` and `--json`, makes the two, and lets whatever goes wrong end in one
line and exit code 1. An `Output` prints tables for people, or JSON for programs.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final

import typer

from leveret.cli.management import Broker
from leveret.cli.options import (
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
            table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            style = "red" if row.get("messages_damaged") else None
            table.add_row(*(_shown(field(row, name)) for name in names), style=style)
        # Without colour where nobody looks, and as wide as it has to be: programs read it too.
        width = None if sys.stdout.isatty() else _UNLIMITED
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
            typer.echo(f"{name:<{width}}  {_shown(value)}")

    def done(self, text: str, found: object = None) -> None:
        """What was done: a sentence, or JSON."""
        if self.as_json:
            print_json(found if found is not None else {"done": text})
        else:
            typer.echo(text)


def asks(function: Callable[..., None]) -> Callable[..., None]:
    """A command of a function whose first two parameters are the broker and the output."""
    own = inspect.signature(function, eval_str=True)
    parameters = list(own.parameters.values())[2:]

    @wraps(function)
    def command(**given: Any) -> None:
        url, user, password = given.pop("url"), given.pop("user"), given.pop("password")
        output = Output(given.pop("as_json"))
        with one_line_on_failure():
            function(Broker(url, user, password), output, **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED.items()
    ]
    positional = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    vars(command)["__signature__"] = own.replace(parameters=[*positional, *shared])
    command.__annotations__ = {p.name: p.annotation for p in [*positional, *shared]}
    del vars(command)["__wrapped__"]  # its signature is another one
    return command


def field(row: Row, name: str) -> Any:
    """A field by its path; None where there is none."""
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(_shown(each) for each in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(each)}" for name, each in value.items())
    return "".join(c if c.isprintable() else "�" for c in str(value))  # a name may hold escapes
