"""Commands `leveret ctl list`, `queues`, `show` and `environment`: objects as tables."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Final

import typer

from leveret.cli.shared.management import ManagementClient, quote_path
from leveret.cli.shared.output import Output, Row, broker_command, field_at

# Kind → path in the API, whether the path can end with a vhost, and the default columns.
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
    "federation-links": (
        "federation-links",
        True,
        "vhost,type,exchange,queue,upstream,status,messages,error",
    ),
    "tasks": ("tasks", False, "id,kind,state,done,total,rate,source,target,user,error"),
    "audit": ("audit", False, "time_ms,user,peer,action,target,result"),
}


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@broker_command
def list_objects(
    broker: ManagementClient,
    output: Output,
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.", autocompletion=_kinds)],
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only this vhost.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Columns to show, separated by commas.")
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Sort by this column.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort in descending order.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="Only objects whose name contains this text.")
    ] = None,
) -> None:
    """List queues, connections, users and other objects."""
    if kind not in KINDS:
        raise typer.BadParameter(f"unknown kind {kind}; use one of {', '.join(KINDS)}")
    found = _fetch(broker, kind, vhost)
    _require_known("--columns", (columns or "").split(","), kind, found)
    if sort is not None:
        by = sort
        _require_known("--sort", [by], kind, found)
        found.sort(key=lambda row: _sort_key(field_at(row, by)), reverse=reverse)
    if name is not None:
        found = [row for row in found if name in str(row.get("name", ""))]
    _print(output, kind, found, columns)


def _fetch(broker: ManagementClient, kind: str, vhost: str | None) -> list[Row]:
    path, takes_vhost, _ = KINDS[kind]
    of_vhost = f"/{quote_path(vhost)}" if vhost is not None and takes_vhost else ""
    found: list[Row] = broker.get(f"/api/{path}{of_vhost}")
    if vhost is not None and not takes_vhost:
        found = [row for row in found if row.get("vhost") == vhost]
    return found


def _print(output: Output, kind: str, found: list[Row], columns: str | None) -> None:
    output.table(found, (columns or KINDS[kind][2]).split(","))
    if kind == "queues" and not output.as_json:
        for queue in found:
            for reason in queue["damage"]:
                typer.echo(f"{queue['vhost']} {queue['name']}: {reason}")


def _require_known(option: str, columns: list[str], kind: str, rows: list[Row]) -> None:
    """Refuse a column that no listed object has. With no objects, accept any column."""
    known = set(KINDS[kind][2].split(","))
    for row in rows:
        known.update(_fields_of(row, ""))
    for column in columns:
        if column and column not in known and rows:
            near = get_close_matches(column, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(known))}"
            raise typer.BadParameter(f"{kind} have no column {column}; {hint}", param_hint=option)


def _fields_of(row: Row, prefix: str) -> Iterator[str]:
    """Yield the path of each field, such as `queue.name`."""
    for name, value in row.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _fields_of(value, f"{prefix}{name}.")


def _sort_key(value: object) -> tuple[int, float, str]:
    """Return a sort key: missing values first, then numbers, then texts."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


@broker_command
def queues(
    broker: ManagementClient,
    output: Output,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only this vhost.")] = None,
) -> None:
    """List the queues, with damaged messages. Same as `list queues`."""
    _print(output, "queues", _fetch(broker, "queues", vhost), None)


_API_PATHS: Final = {
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


@broker_command
def show(
    broker: ManagementClient,
    output: Output,
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(_API_PATHS)}.")],
    name: Annotated[str, typer.Argument(help="Name of the object, as `list` shows it.")],
    vhost: Annotated[str, typer.Option("--vhost", help="The vhost.")] = "/",
) -> None:
    """Show all fields of one object."""
    if kind not in _API_PATHS:
        raise typer.BadParameter(f"unknown kind {kind}; use one of {', '.join(_API_PATHS)}")
    names = (vhost, name) if kind in _IN_VHOST else (name,)
    output.facts(broker.get(f"/api/{_API_PATHS[kind]}/{quote_path(*names)}"))


@broker_command
def environment(broker: ManagementClient, output: Output) -> None:
    """Show the settings that the node uses."""
    output.facts(broker.get("/api/config/effective"))
