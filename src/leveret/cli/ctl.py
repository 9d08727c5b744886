"""`leveret ctl …`: asks a running broker over HTTP, or works on the files of a stopped one.

Every command takes `--json`; whatever goes wrong is one line, and the exit code is 1.
"""

import sys
from typing import Annotated

import typer

from leveret.cli import backup, files
from leveret.cli.management import Broker, in_path
from leveret.cli.options import (
    DEFAULT_URL,
    Json,
    Password,
    Url,
    User,
    one_line_on_failure,
    print_json,
)

app = typer.Typer(no_args_is_help=True, help="Ask and steer a running broker.")
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(files.dump)
app.command()(files.repair)

# Columns of `leveret ctl queues`: heading, field, whether it is a number.
_COLUMNS = (
    ("vhost", "vhost", False),
    ("name", "name", False),
    ("type", "type", False),
    ("ready", "messages_ready", True),
    ("unacked", "messages_unacknowledged", True),
    ("scheduled", "messages_scheduled", True),
    ("damaged", "messages_damaged", True),
    ("consumers", "consumers", True),
    ("durability", "durability", False),
)
_SAFE = {
    "sync": "confirmed messages are on disk (durability sync)",
    "os": "confirmed messages can be lost with the power (durability os)",
    "none": "nothing is stored",
}


@app.command()
def status(
    url: Url = DEFAULT_URL, user: User = None, password: Password = None, as_json: Json = False
) -> None:
    """Show whether the broker is well, and what it is."""
    with one_line_on_failure():
        broker = Broker(url, user, password)
        health = broker.get_any("/api/health")
        version = broker.get_any("/api/version")
    if as_json:
        print_json({"health": health, "version": version})
    else:
        typer.echo(f"node     {health.get('node')}")
        typer.echo(f"health   {health.get('reason') or health.get('status')}")
        typer.echo(f"safe     {_SAFE.get(str(health.get('durability')), 'unknown')}")
        typer.echo(f"version  {version.get('version')} ({version.get('form')})")
    raise typer.Exit(0 if health.get("status") == "ok" else 1)


@app.command()
def queues(
    vhost: Annotated[str | None, typer.Option("--vhost", help="Of this vhost alone.")] = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """List the queues, with what cannot be read of them."""
    path = "/api/queues" if vhost is None else f"/api/queues/{in_path(vhost)}"
    with one_line_on_failure():
        found = Broker(url, user, password).get(path)
    if as_json:
        print_json(found)
        return
    _print_table(found)
    for queue in found:
        for reason in queue["damage"]:
            typer.echo(f"{queue['vhost']} {queue['name']}: {reason}")


def _print_table(found: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, _, is_number in _COLUMNS:
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for queue in found:
        shown = [str(queue[field]) for _, field, _ in _COLUMNS]
        # Without colour, and as wide as it has to be: the output is read by programs too.
        table.add_row(*shown, style="red" if queue["messages_damaged"] else None)
    console = Console(highlight=False, width=1000 if not sys.stdout.isatty() else None)
    width = console.measure(table).maximum
    console.print(table, width=max(width, 1), crop=False, overflow="ignore")
