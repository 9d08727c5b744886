"""Shared options and decorator of the `leveret jobs` commands that call the jobs service.

`@jobs_command` turns a function with the parameters `(Client, Output, *options)` into a command. It
adds `--url`, `--token`, `--data`, `--secret`, `--namespace` and `--json`. The token comes from
`--token`, from the environment, or is created with the secret of the nodes (`--secret`), or with
the secret in the data directory of a node (`--data`).
"""

import inspect
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from leveret.cli.shared.broker_address import DEFAULT_URL
from leveret.cli.shared.options import Json, Url, one_line_on_failure
from leveret.cli.shared.output import Output, Row, set_parameters
from leveret.clock import Clock
from leveret.errors import ConfigError
from leveret.jobs.client.client import Client
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, TOKEN_VARIABLE

SECRET_VARIABLE: Final = "LEVERET_JOBS_TOKEN_SECRET"  # as for `leveret serve`
_TOKEN_LIFETIME_S: Final = 3600  # a command that runs longer creates another token
_NO_TOKEN: Final = (
    f"a token is needed: give --token or set {TOKEN_VARIABLE}; on the machine of the broker, give "
    "--data DIR or --secret, or let `leveret jobs token --data DIR` print one"
)

Token = Annotated[
    str | None, typer.Option("--token", envvar=TOKEN_VARIABLE, help="Token for the jobs service.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Without --token: create a token with the secret in this data directory."
    ),
]
Secret = Annotated[
    str,
    typer.Option(
        "--secret",
        envvar=SECRET_VARIABLE,
        help="Without --token: create a token with this jobs_token_secret of the nodes.",
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", envvar="LEVERET_JOBS_NAMESPACE", help="The namespace of the topic."
    ),
]
Topic = Annotated[str, typer.Argument(help="The topic.")]
# Parameters that `@jobs_command` adds: name → (type, default).
SHARED_OPTIONS: Final = {
    "url": (Url, DEFAULT_URL),
    "token": (Token, None),
    "data": (Data, None),
    "secret": (Secret, ""),
    "namespace": (Namespace, DEFAULT_NAMESPACE),
    "as_json": (Json, False),
}


def jobs_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first two parameters are the client and the output."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        url, token, data = given.pop("url"), given.pop("token"), given.pop("data")
        secret = given.pop("secret")
        namespace, output = given.pop("namespace"), Output(given.pop("as_json"))
        with one_line_on_failure("leveret jobs"):
            if token is None and (data is not None or secret):
                _create_token(data, secret)  # fail now if no token can be created
                token = partial(_create_token, data, secret)  # `top` may outlive a token
            if token is None:
                raise ConfigError(_NO_TOKEN)
            with _make_client(url, token, namespace) as client:
                function(client, output, **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED_OPTIONS.items()
    ]
    return set_parameters(command, function, [*own, *shared])


def _make_client(url: str, token: str | Callable[[], str], namespace: str) -> Client:
    try:
        return Client(url, token=token, namespace=namespace)
    except ValueError as fault:  # of the address, or of a token that cannot be sent
        raise ConfigError(str(fault)) from fault


def _create_token(data: Path | None, secret: str) -> str:
    """Return a token for all namespaces, signed with the secret of the nodes.

    Nodes with a `jobs_token_secret` do not use the secret in their data directories.
    """
    from leveret.runtime.job_tokens import ALL, make_token, secret_of_node

    if not secret:
        assert data is not None
        secret = secret_of_node(data)
    return make_token(secret, [ALL], "cli", Clock().now_ms(), _TOKEN_LIFETIME_S)


def to_row(found: object) -> Row:
    """Return an object of the jobs API as a table row, with its payload as text."""
    row: Row = msgspec.to_builtins(found, builtin_types=(bytes,))
    if isinstance(row.get("payload"), bytes):
        row["payload"] = payload_text(row["payload"])
    return row


def payload_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(payload).decode()}"
