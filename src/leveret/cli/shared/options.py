"""Options that several commands share, and the one-line error that ends a failed command."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from leveret.cli.shared.broker_address import PASSWORD_ENV, URL_ENV, USER_ENV
from leveret.cli.shared.failures import describe_failure

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=URL_ENV,
        help="Address of the broker's HTTP API. May contain user:password@.",
    ),
]
User = Annotated[
    str | None, typer.Option("--user", envvar=USER_ENV, help="User name for the broker.")
]
Password = Annotated[
    str | None, typer.Option("--password", envvar=PASSWORD_ENV, help="Password of the user.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Vhost = Annotated[str, typer.Option("--vhost", help="The vhost.")]


@contextmanager
def one_line_on_failure(program: str = "leveret ctl") -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 1."""
    try:
        yield
    except BrokenPipeError:  # of stdout: the reader, such as `head`, has seen enough
        raise  # Typer ends the command quietly
    except Exception as fault:
        text = describe_failure(fault)
        if text is None:
            raise
        typer.echo(f"{program}: {text}", err=True)
        raise typer.Exit(1) from fault


def print_json(found: object) -> None:
    typer.echo(json.dumps(found, indent=2, default=str))
