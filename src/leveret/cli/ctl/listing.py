"""`leveret ctl list …` and `show`: what the broker has, as tables."""

from typing import Annotated, Final

import typer

from leveret.cli.shared.management import Broker, in_path
from leveret.cli.shared.output import Output, Row, asks, field

# What can be listed: path, whether it can be of one vhost, and the columns that are shown.
KINDS: Final[dict[str, tuple[str, bool, str]]] = {
    "queues": (
        "queues",
        True,
        "vhost,name,type,messages_ready,messages_unacknowledged,messages_scheduled,"
        "messages_damaged,consumers,durability",
    ),
    "exchanges": ("exchanges", True, "vhost,name,type,durable,internal,policy"),
    "bindings": (
        "bindings",
        True,
        "vhost,source,destination_type,destination,routing_key,arguments",
    ),
    "connections": ("connections", False, "name,user,vhost,state,channels,ssl,connected_at"),
    "channels": (
        "channels",
        False,
        "name,user,vhost,consumer_count,prefetch_count,messages_unacknowledged,"
        "messages_unconfirmed,confirm",
    ),
    "consumers": (
        "consumers",
        True,
        "queue.vhost,queue.name,consumer_tag,channel_details.name,ack_required,prefetch_count,"
        "active",
    ),
    "vhosts": ("vhosts", False, "name,description,default_queue_type,messages,tracing"),
    "users": ("users", False, "name,tags"),
    "permissions": ("permissions", False, "vhost,user,configure,write,read"),
    "topic-permissions": ("topic-permissions", False, "vhost,user,exchange,write,read"),
    "policies": ("policies", True, "vhost,name,pattern,apply-to,priority,definition"),
    "operator-policies": (
        "operator-policies",
        True,
        "vhost,name,pattern,apply-to,priority,definition",
    ),
    "parameters": ("parameters", False, "component,vhost,name,value"),
    "limits": ("vhost-limits", True, "vhost,value"),
    "nodes": ("nodes", False, "name,type,running,mem_used,fd_used,uptime"),
    "shovels": ("shovels", True, "vhost,name,state"),
    "tasks": ("tasks", False, "id,kind,state,done,total,rate,source,target,user,error"),
    "audit": ("audit", False, "time_ms,user,peer,action,target,result"),
}


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@asks
def list_objects(
    broker: Broker,
    output: Output,
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.", autocompletion=_kinds)],
    vhost: Annotated[str | None, typer.Option("--vhost", help="Of this vhost alone.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Other columns, with commas between.")
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="By this column.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the largest.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Whose name holds this.")] = None,
) -> None:
    """List queues, exchanges, connections, users and all the rest."""
    if kind not in KINDS:
        raise typer.BadParameter(f"nothing is called {kind}; there are {', '.join(KINDS)}")
    found = _found(broker, kind, vhost)
    if name is not None:
        found = [row for row in found if name in str(row.get("name", ""))]
    if sort is not None:
        by = sort
        found.sort(key=lambda row: _order(field(row, by)), reverse=reverse)
    _print(output, kind, found, columns)


def _found(broker: Broker, kind: str, vhost: str | None) -> list[Row]:
    path, can_be_of_vhost, _ = KINDS[kind]
    of_vhost = f"/{in_path(vhost)}" if vhost is not None and can_be_of_vhost else ""
    found: list[Row] = broker.get(f"/api/{path}{of_vhost}")
    if vhost is not None and not can_be_of_vhost:
        found = [row for row in found if row.get("vhost") == vhost]
    return found


def _print(output: Output, kind: str, found: list[Row], columns: str | None) -> None:
    output.table(found, (columns or KINDS[kind][2]).split(","))
    if kind == "queues" and not output.as_json:
        for queue in found:
            for reason in queue["damage"]:
                typer.echo(f"{queue['vhost']} {queue['name']}: {reason}")


def _order(value: object) -> tuple[int, float, str]:
    """Numbers before texts, and what is missing first."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


@asks
def queues(
    broker: Broker,
    output: Output,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Of this vhost alone.")] = None,
) -> None:
    """List the queues, with what cannot be read of them: the same as `list queues`."""
    _print(output, "queues", _found(broker, "queues", vhost), None)


_ONE: Final = {
    "queue": "queues",
    "exchange": "exchanges",
    "connection": "connections",
    "channel": "channels",
    "vhost": "vhosts",
    "user": "users",
    "node": "nodes",
    "policy": "policies",
    "stream": "streams",
    "task": "tasks",
}
_IN_VHOST: Final = ("queue", "exchange", "policy", "stream")


@asks
def show(
    broker: Broker,
    output: Output,
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(_ONE)}.")],
    name: Annotated[str, typer.Argument(help="Its name.")],
    vhost: Annotated[str, typer.Option("--vhost", help="Its vhost.")] = "/",
) -> None:
    """Show everything about one object."""
    if kind not in _ONE:
        raise typer.BadParameter(f"nothing is called {kind}; there are {', '.join(_ONE)}")
    names = (vhost, name) if kind in _IN_VHOST else (name,)
    output.facts(broker.get(f"/api/{_ONE[kind]}/{in_path(*names)}"))


@asks
def environment(broker: Broker, output: Output) -> None:
    """Show the settings that are in force on the node."""
    output.facts(broker.get("/api/config/effective"))
