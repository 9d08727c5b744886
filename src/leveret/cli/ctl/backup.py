"""`leveret ctl backup` and `leveret ctl restore`: their arguments and options."""

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.shared.broker_address import DEFAULT_URL
from leveret.cli.shared.management import ManagementClient, quote_path
from leveret.cli.shared.options import (
    Json,
    Password,
    Url,
    User,
    Vhost,
    one_line_on_failure,
)


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the backup.")],
    queue: Annotated[str | None, typer.Option("--queue", help="Back up only this queue.")] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Write a backup of a running broker, or of one queue."""
    from leveret.cli.ctl.backup_actions import back_up

    path = "/api/backup"
    if queue is not None:
        path += f"/{quote_path(vhost)}/{quote_path(queue)}"
    with one_line_on_failure():
        broker = ManagementClient(url, user, password)
    back_up(broker, path, file, as_json=as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="The backup file.")],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Restore into this new data directory. The node must be stopped."
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Restore this queue into a running broker.")
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", help="Restore into a queue of this name instead.")
    ] = None,
    vhost: Vhost = "/",
    url: Url = DEFAULT_URL,
    user: User = None,
    password: Password = None,
    as_json: Json = False,
) -> None:
    """Restore a node or a queue. A node goes into an empty data directory, a queue into a running
    broker.
    """
    from leveret.cli.ctl.backup_actions import restore_directory, restore_queue

    if (data is None) == (queue is None):
        typer.echo("leveret ctl restore: give either --data or --queue", err=True)
        raise typer.Exit(2)
    if data is not None:
        restore_directory(file, data, as_json=as_json)
        return
    assert queue is not None
    path = f"/api/restore/{quote_path(vhost)}/{quote_path(into or queue)}"
    with one_line_on_failure():
        broker = ManagementClient(url, user, password)
    restore_queue(broker, path, file, queue, as_json=as_json)
