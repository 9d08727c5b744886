"""The Typer application `leveret ctl`, and its command `status`.

The commands ask a running broker over HTTP, or read the files of a stopped one. Every command takes
`--json`. An error is one line, and the exit code is 1.
"""

import typer

from leveret.cli.ctl import access, backup, cluster, files, listing, messages, objects, tasks
from leveret.cli.shared.groups import GROUPS
from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.output import Output, broker_command

app = typer.Typer(no_args_is_help=True, help=GROUPS["ctl"])

_DURABILITY_TEXTS = {
    "sync": "confirmed messages are on disk (durability sync)",
    "os": "a power failure can lose confirmed messages (durability os)",
    "none": "nothing is stored",
}


@broker_command
def status(broker: ManagementClient, output: Output) -> None:
    """Show the health and version of the broker."""
    health = broker.get_any("/api/health")
    if broker.has_login:  # the health check needs no login, but a wrong one must be reported
        broker.get("/api/whoami")
    version = broker.get_any("/api/version")
    if output.as_json:
        output.facts({"health": health, "version": version})
    else:
        typer.echo(f"node     {health.get('node')}")
        typer.echo(f"health   {health.get('reason') or health.get('status')}")
        typer.echo(f"safe     {_DURABILITY_TEXTS.get(str(health.get('durability')), 'unknown')}")
        typer.echo(f"version  {version.get('version')} ({version.get('form')})")
    raise typer.Exit(0 if health.get("status") == "ok" else 1)


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
