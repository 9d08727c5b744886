"""`leveret ctl …`: asks a running broker over HTTP and prints what it says.

Every command takes `--url` and `--json`; without a broker it ends with one line and exit code 1.
"""

import json
from typing import Annotated

import typer

from leveret.cli.management import NoAnswer, get

app = typer.Typer(no_args_is_help=True, help="Ask and steer a running broker.")

Url = Annotated[
    str, typer.Option("--url", envvar="LEVERET_URL", help="Address of the broker's HTTP API.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DEFAULT_URL = "http://127.0.0.1:15672"
_SAFE = {
    "sync": "confirmed messages are on disk (durability sync)",
    "os": "confirmed messages can be lost with the power (durability os)",
    "none": "nothing is stored",
}


@app.command()
def status(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show whether the broker is well, and what it is."""
    try:
        _, health = get(url, "/api/health")
        _, version = get(url, "/api/version")
    except NoAnswer as fault:
        typer.echo(f"leveret ctl: {fault}", err=True)
        raise typer.Exit(1) from fault
    if as_json:
        typer.echo(json.dumps({"health": health, "version": version}, indent=2))
    else:
        typer.echo(f"node     {health.get('node')}")
        typer.echo(f"health   {health.get('reason') or health.get('status')}")
        typer.echo(f"safe     {_SAFE.get(str(health.get('durability')), 'unknown')}")
        typer.echo(f"version  {version.get('version')} ({version.get('form')})")
    raise typer.Exit(0 if health.get("status") == "ok" else 1)
