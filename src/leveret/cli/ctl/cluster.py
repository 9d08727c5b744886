"""Commands `leveret ctl cluster`: show a cluster and change it. Every node answers them."""

from typing import Annotated, Any

import typer

from leveret.cli.shared.management import ManagementClient
from leveret.cli.shared.output import Output, broker_command

app = typer.Typer(no_args_is_help=True, help="Show the cluster of a node, and change it.")

Node = Annotated[str, typer.Argument(help="Name of the node.")]


@app.command()
@broker_command
def status(broker: ManagementClient, output: Output) -> None:
    """Show the members of the cluster, who leads, and how far the others are behind."""
    found: dict[str, Any] = broker.get("/api/cluster")
    if output.as_json:
        output.facts(found)
        return
    if not found["cluster"] and not found.get("waiting_for"):
        typer.echo(f"node {found['name']} is a single node: it is not in a cluster")
        return
    raft = found.get("raft") or {}
    typer.echo(f"asked    node {found['name']}")
    typer.echo(f"leader   {raft.get('leader') or 'none'}")
    if found.get("waiting_for"):
        typer.echo(f"waits    {found['waiting_for']}")
    for name, sentence in found.get("refusals", {}).items():
        typer.echo(f"refused  by node {name}: {sentence}")
    columns = ("name", "role", "address", "is_connected", "match", "lag_blocks", "heard_s")
    output.table([{name: row.get(name) for name in columns} for row in found["members"]], columns)


@app.command()
@broker_command
def lead(broker: ManagementClient, output: Output, node: Node) -> None:
    """Let a node lead. Clients reconnect to it or are relayed to it."""
    output.done(broker.post("/api/cluster/lead", {"node": node})["message"])


@app.command()
@broker_command
def remove(broker: ManagementClient, output: Output, node: Node) -> None:
    """Remove a node from the cluster. Refused if the rest would have no majority."""
    output.done(broker.post("/api/cluster/remove", {"node": node})["message"])
