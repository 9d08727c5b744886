"""Commands `leveret ctl cluster`: show a cluster and change it. Every node answers them."""

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli.ctl import cluster_status
from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.options import Json
from leveret.cli.shared.output import Output, broker_command

app = typer.Typer(no_args_is_help=True, help="Show the cluster of a node, and change it.")

Node = Annotated[str, typer.Argument(help="Name of the node.")]


@app.command()
@broker_command
def status(broker: ManagementClient, output: Output) -> None:
    """Show who leads and who follows. Also shows who is behind, and what to do about each fault.

    The exit code is 0 if the cluster is healthy, 3 if it serves clients but is degraded, 4 if it
    does not serve clients, and 1 if the node does not answer.
    """
    facts = cluster_status.ask(broker)
    if cluster_status.is_alone(facts):
        output.done(f"node {facts['name']} is alone: it is in no cluster", facts)
        return
    if output.as_json:
        output.facts(facts)
    else:
        for line in cluster_status.describe(facts):
            typer.echo(line)
        rows = cluster_status.rows(facts)
        if rows:
            typer.echo("")
            output.table(rows, rows[0])
            typer.echo("")
        for line in cluster_status.verdict(facts):
            typer.echo(line)
    raise typer.Exit(cluster_status.EXIT_CODES[facts["state"]])


@app.command()
@broker_command
def lead(broker: ManagementClient, output: Output, node: Node) -> None:
    """Let a node lead. Clients of the old leader reconnect."""
    output.done(broker.post("/api/cluster/lead", {"node": node})["message"])


@app.command()
@broker_command
def remove(broker: ManagementClient, output: Output, node: Node) -> None:
    """Remove a node from the cluster. Refused if the rest would have no majority."""
    output.done(broker.post("/api/cluster/remove", {"node": node})["message"])


@app.command()
@broker_command
def drain(broker: ManagementClient, output: Output, node: Node) -> None:
    """Let a node lead only if no other one can, for maintenance. A restart ends this."""
    output.done(broker.post("/api/cluster/drain", {"node": node})["message"])


@app.command()
@broker_command
def revive(broker: ManagementClient, output: Output, node: Node) -> None:
    """Let a drained node lead again."""
    output.done(broker.post("/api/cluster/revive", {"node": node})["message"])


@app.command()
def rescue(
    data: Annotated[Path, typer.Option("--data", help="The data directory of a stopped node.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Make a stopped node a cluster of one. Only if the majority of its cluster is lost for good.

    It first says what may be lost, and asks. Then start the node again, and start the others with
    empty data directories.
    """
    from leveret.cli.ctl.cluster_rescue import rescue_directory

    rescue_directory(data, is_sure=yes, as_json=as_json)
