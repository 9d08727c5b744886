"""Options that several commands share, and the one-line error that ends a failed command."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from leveret.cli.shared.management import NoAnswerError
from leveret.errors import LeveretError

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="LEVERET_URL",
        help="Address of the broker's HTTP API. May contain user:password@.",
    ),
]
User = Annotated[
    str | None, typer.Option("--user", envvar="LEVERET_USER", help="User name for the broker.")
]
Password = Annotated[
    str | None, typer.Option("--password", envvar="LEVERET_PASSWORD", help="Password of the user.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Vhost = Annotated[str, typer.Option("--vhost", help="The vhost.")]
DEFAULT_URL = "http://127.0.0.1:15672"


@contextmanager
def one_line_on_failure(program: str = "leveret ctl") -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 1."""
    try:
        yield
    except (NoAnswerError, LeveretError) as fault:
        typer.echo(f"{program}: {fault}", err=True)
        raise typer.Exit(1) from fault
    except OSError as fault:
        reason = fault.strerror or str(fault)
        text = f"{fault.filename}: {reason}" if fault.filename else reason
        typer.echo(f"{program}: {text}", err=True)
        raise typer.Exit(1) from fault
    except UnicodeEncodeError as fault:
        typer.echo(f"{program}: {fault.object!a} cannot be encoded as {fault.encoding}", err=True)
        raise typer.Exit(1) from fault


def print_json(found: object) -> None:
    typer.echo(json.dumps(found, indent=2, default=str))
