"""`leveret jobs`: the jobs service from the command line.

`token` works on the data directory and needs no running node; what asks the service is in modules
of its own.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.errors import ConfigError

SECOND: Final = 1
UNITS: Final = {"s": SECOND, "m": 60, "h": 3_600, "d": 86_400}
SECONDS_MAX: Final = 10 * 366 * 86_400

app = typer.Typer(no_args_is_help=True, help="Jobs: tokens of the service, and work with it.")


def _seconds(text: str) -> int:
    """A span of time: a number with s, m, h or d behind it."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in UNITS:
        raise typer.BadParameter("a span of time is a number with s, m, h or d: 12h")
    seconds = int(number[:12]) * UNITS[unit]
    if not 0 < seconds <= SECONDS_MAX:
        raise typer.BadParameter("a token lasts from a second to ten years")
    return seconds


@app.callback()
def jobs() -> None:
    """Options that stand before a command."""


@app.command()
def token(
    namespace: Annotated[
        list[str], typer.Option("--namespace", "-n", help="May be used; repeat it; * is all.")
    ],
    data: Annotated[Path, typer.Option("--data", help="Data directory of the node.")] = Path(
        "leveret-data"
    ),
    expires: Annotated[
        int, typer.Option("--expires", parser=_seconds, metavar="SPAN", help="How long it lasts.")
    ] = "30d",  # type: ignore[assignment]
    subject: Annotated[str, typer.Option("--subject", help="Whom it is for.")] = "jobs",
    secret: Annotated[
        str,
        typer.Option(
            envvar="LEVERET_JOBS_TOKEN_SECRET",
            help="The node's jobs_token_secret, where it has one.",
            show_envvar=True,
        ),
    ] = "",
) -> None:
    """Print a token, signed by the secret of a data directory; the secret is made if need be."""
    from leveret.runtime.job_tokens import make_token, now_ms, secret_in

    try:
        secret = secret or secret_in(data)
    except ConfigError as fault:
        typer.echo(f"leveret jobs token: {fault}", err=True)
        raise typer.Exit(1) from None
    typer.echo(make_token(secret, namespace, subject, now_ms(), expires))
