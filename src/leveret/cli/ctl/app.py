"""The Typer application `leveret ctl`, and its command `status`.

The commands ask a running broker over HTTP, or read the files of a stopped one. Every command takes
`--json`. An error is one line, and the exit code is 1.
"""

import typer

from leveret.cli.ctl import access, backup, cluster, files, listing, messages, objects, tasks
from leveret.cli.ctl.status import show_status
from leveret.cli.shared.groups import GROUPS
from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.output import Output, broker_command

app = typer.Typer(no_args_is_help=True, help=GROUPS["ctl"])


@broker_command
def status(broker: ManagementClient, output: Output) -> None:
    """Show the health and version of the broker."""
    raise typer.Exit(show_status(broker, as_json=output.as_json, echo=typer.echo))


for group, name in (
    (objects.declare, "declare"),
    (objects.delete, "delete"),
    (access.user, "user"),
    (access.permission, "permission"),
    (access.policy, "policy"),
    (access.parameter, "parameter"),
    (access.limit, "limit"),
    (access.definitions, "definitions"),
    (tasks.app, "task"),
    (cluster.app, "cluster"),
):
    app.add_typer(group, name=name)

for command in (
    status,
    listing.environment,
    listing.queues,
    listing.show,
    objects.bind,
    objects.unbind,
    objects.purge,
    objects.pause,
    objects.resume,
    objects.close_connection,
    messages.publish,
    messages.get,
    messages.peek,
    messages.search,
    messages.unacked,
    messages.explain,
    messages.trace,
    messages.route,
    tasks.move,
    tasks.copy,
    tasks.drop,
    tasks.redrive,
    backup.backup,
    backup.restore,
    files.dump,
    files.repair,
):
    app.command()(command)
app.command("list")(listing.list_objects)
