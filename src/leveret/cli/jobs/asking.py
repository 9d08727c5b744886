"""Commands that ask the jobs service: what they share.

`@asks_jobs` turns a function of a `Client`, an `Output` and its own options into a command: it adds
`--url`, `--token`, `--data`, `--namespace` and `--json`. The token is the one that is given, or
that of the environment, or one made from the secret in the data directory of a node.
"""

import inspect
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from leveret.cli.shared.options import DEFAULT_URL, Json, Url, one_line_on_failure
from leveret.cli.shared.output import Output, Row, with_parameters
from leveret.clock import Clock
from leveret.errors import ConfigError
from leveret.jobs.client.client import Client
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, TOKEN_VARIABLE

_LASTS_S: Final = 3600  # a command that runs for longer makes another one

Token = Annotated[
    str | None, typer.Option("--token", envvar=TOKEN_VARIABLE, help="The token of the caller.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Make a token from the secret in this data directory, if none is given."
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", envvar="LEVERET_JOBS_NAMESPACE", help="The namespace of the topic."
    ),
]
Topic = Annotated[str, typer.Argument(help="The topic.")]
# Parameters that every such command has.
SHARED_BY_JOBS: Final = {
    "url": (Url, DEFAULT_URL),
    "token": (Token, None),
    "data": (Data, None),
    "namespace": (Namespace, DEFAULT_NAMESPACE),
    "as_json": (Json, False),
}


def asks_jobs(function: Callable[..., None]) -> Callable[..., None]:
    """A command of a function whose first two parameters are the client and the output."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        url, token, data = given.pop("url"), given.pop("token"), given.pop("data")
        namespace, output = given.pop("namespace"), Output(given.pop("as_json"))
        with one_line_on_failure("leveret jobs"):
            if token is None and data is not None:
                _made_token(data)  # where none can be made that is told at once
                token = partial(_made_token, data)  # `top` may outlast one
            with Client(url, token=token, namespace=namespace) as client:
                function(client, output, **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED_BY_JOBS.items()
    ]
    return with_parameters(command, function, [*own, *shared])


def _made_token(data: Path) -> str:
    """A token for an hour and all namespaces, by the secret of a node on this machine."""
    from leveret.runtime.job_tokens import ALL, SECRET_FILE, make_token, secret_in
    from leveret.storage.disk import LOCK_FILE

    # The secret is made with the first token; in a directory that is mistyped, none is.
    if not any((data / name).exists() for name in (SECRET_FILE, LOCK_FILE)):
        raise ConfigError(f"{data} is not the data directory of a node")
    return make_token(secret_in(data), [ALL], "cli", Clock().now_ms(), _LASTS_S)


def row_of(found: object) -> Row:
    """An object of the API as a row of a table; a payload is text where it is text."""
    row: Row = msgspec.to_builtins(found, builtin_types=(bytes,))
    if isinstance(row.get("payload"), bytes):
        row["payload"] = text_of(row["payload"])
    return row


def text_of(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(payload).decode()}"
