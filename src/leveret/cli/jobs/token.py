"""`leveret jobs token`: create a token. It reads the data directory and needs no running node."""

from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli.shared.groups import GROUPS
from leveret.errors import ConfigError
from leveret.job_model import NAME_BYTES_MAX

SECOND: Final = 1
UNITS: Final = {"s": SECOND, "m": 60, "h": 3_600, "d": 86_400}
SECONDS_MAX: Final = 10 * 366 * 86_400

app = typer.Typer(no_args_is_help=True, help=GROUPS["jobs"])


def _seconds(text: str) -> int:
    """Parse a time span: a number followed by s, m, h or d. Return seconds."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in UNITS:
        raise typer.BadParameter("a time span is a number followed by s, m, h or d, such as 12h")
    seconds = int(number[:12]) * UNITS[unit]
    if not 0 < seconds <= SECONDS_MAX:
        raise typer.BadParameter("a token must last between one second and ten years")
    return seconds


@app.callback()
def jobs() -> None:
    """Make `leveret jobs` a group: Typer would run a single command without its name."""


@app.command()
def token(
    namespace: Annotated[
        list[str],
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace that the token gives access to; * = all. Repeatable.",
        ),
    ],
    data: Annotated[Path, typer.Option("--data", help="Data directory of the node.")] = Path(
        "leveret-data"
    ),
    expires: Annotated[
        int,
        typer.Option(
            "--expires", parser=_seconds, metavar="SPAN", help="Lifetime of the token, such as 12h."
        ),
    ] = "30d",  # type: ignore[assignment]
    subject: Annotated[str, typer.Option("--subject", help="Name of the token's owner.")] = "jobs",
    secret: Annotated[
        str,
        typer.Option(
            envvar="LEVERET_JOBS_TOKEN_SECRET",
            help="The node's jobs_token_secret, if it is set.",
            show_envvar=True,
        ),
    ] = "",
) -> None:
    """Print a new token. It is signed with the secret in the data directory of a node."""
    from leveret.runtime.job_tokens import make_token, now_ms, secret_of_node

    for name in namespace:
        size = len(name.encode("utf-8", "surrogatepass"))
        if not (name.isprintable() and 0 < size <= NAME_BYTES_MAX):
            text = f"a namespace has 1 to {NAME_BYTES_MAX} bytes of printable characters"
            raise typer.BadParameter(text)
    try:
        secret = secret or secret_of_node(data)
    except ConfigError as fault:
        typer.echo(f"leveret jobs token: {fault}", err=True)
        raise typer.Exit(1) from None
    typer.echo(make_token(secret, namespace, subject, now_ms(), expires))
