"""`leveret ctl` for what messages pass through: declare, delete, bind, purge, pause, close."""

import json
from typing import Annotated, Any

import typer

from leveret.cli.shared.management import Broker, in_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, asks

declare = typer.Typer(no_args_is_help=True, help="Make an exchange, a queue or a vhost.")
delete = typer.Typer(no_args_is_help=True, help="Delete an exchange, a queue or a vhost.")

Name = Annotated[str, typer.Argument(help="Its name.")]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", "-a", help="KEY=VALUE, the value as JSON or text; repeat it."),
]
Durable = Annotated[bool, typer.Option("--durable/--transient", help="Outlives a restart.")]
AutoDelete = Annotated[bool, typer.Option("--auto-delete", help="Goes when nobody uses it.")]
IfUnused = Annotated[bool, typer.Option("--if-unused", help="Only where nobody uses it.")]


def arguments_of(given: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE pairs as a table; a value that is no JSON is text."""
    found: dict[str, Any] = {}
    for pair in given or ():
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


@declare.command("queue")
@asks
def declare_queue(
    broker: Broker,
    output: Output,
    name: Name,
    kind: Annotated[str | None, typer.Option("--type", help="classic, quorum or stream.")] = None,
    durable: Durable = True,
    auto_delete: AutoDelete = False,
    argument: Arguments = None,
    vhost: Vhost = "/",
) -> None:
    """Make a queue."""
    table = arguments_of(argument)
    if kind is not None:
        table["x-queue-type"] = kind
    body = {"durable": durable, "auto_delete": auto_delete, "arguments": table}
    broker.put(f"/api/queues/{in_path(vhost, name)}", body)
    output.done(f"queue {name} is declared")


@declare.command("exchange")
@asks
def declare_exchange(
    broker: Broker,
    output: Output,
    name: Name,
    kind: Annotated[str, typer.Option("--type", help="direct, topic, fanout, headers, …")],
    durable: Durable = True,
    auto_delete: AutoDelete = False,
    internal: Annotated[bool, typer.Option("--internal", help="Not for publishers.")] = False,
    argument: Arguments = None,
    vhost: Vhost = "/",
) -> None:
    """Make an exchange."""
    body = {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments_of(argument),
    }
    broker.put(f"/api/exchanges/{in_path(vhost, name)}", body)
    output.done(f"exchange {name} is declared")


@declare.command("vhost")
@asks
def declare_vhost(
    broker: Broker,
    output: Output,
    name: Name,
    description: Annotated[str, typer.Option("--description", help="For people.")] = "",
    default_queue_type: Annotated[
        str | None, typer.Option("--default-queue-type", help="Of queues declared without one.")
    ] = None,
    tracing: Annotated[bool, typer.Option("--tracing", help="Copy every message.")] = False,
) -> None:
    """Make a vhost, or change it."""
    body: dict[str, Any] = {"description": description, "tracing": tracing}
    if default_queue_type is not None:
        body["default_queue_type"] = default_queue_type
    broker.put(f"/api/vhosts/{in_path(name)}", body)
    output.done(f"vhost {name} is declared")


@delete.command("queue")
@asks
def delete_queue(
    broker: Broker,
    output: Output,
    name: Name,
    if_unused: IfUnused = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only without messages.")] = False,
    vhost: Vhost = "/",
) -> None:
    """Delete a queue with all its messages."""
    wanted = [name for name, is_on in (("if-unused", if_unused), ("if-empty", if_empty)) if is_on]
    query = "?" + "&".join(f"{each}=true" for each in wanted) if wanted else ""
    broker.delete(f"/api/queues/{in_path(vhost, name)}{query}")
    output.done(f"queue {name} is deleted")


@delete.command("exchange")
@asks
def delete_exchange(
    broker: Broker, output: Output, name: Name, if_unused: IfUnused = False, vhost: Vhost = "/"
) -> None:
    """Delete an exchange with its bindings."""
    query = "?if-unused=true" if if_unused else ""
    broker.delete(f"/api/exchanges/{in_path(vhost, name)}{query}")
    output.done(f"exchange {name} is deleted")


@delete.command("vhost")
@asks
def delete_vhost(broker: Broker, output: Output, name: Name) -> None:
    """Delete a vhost with everything in it."""
    broker.delete(f"/api/vhosts/{in_path(name)}")
    output.done(f"vhost {name} is deleted")


Source = Annotated[str, typer.Argument(help="The exchange that messages come from.")]
Destination = Annotated[str, typer.Argument(help="The queue that they go to.")]
Key = Annotated[str, typer.Option("--routing-key", "-k", help="The key of the binding.")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="The destination is an exchange.")]


@asks
def bind(
    broker: Broker,
    output: Output,
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    argument: Arguments = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = "/",
) -> None:
    """Bind a queue, or an exchange, to an exchange."""
    body = {"routing_key": routing_key, "arguments": arguments_of(argument)}
    broker.post(_bindings(vhost, source, destination, to_exchange), body)
    output.done(f"{destination} is bound to {source}")


@asks
def unbind(
    broker: Broker,
    output: Output,
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    argument: Arguments = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = "/",
) -> None:
    """Remove a binding."""
    path = _bindings(vhost, source, destination, to_exchange)
    table = arguments_of(argument)
    for binding in broker.get(path):
        if binding["routing_key"] == routing_key and binding["arguments"] == table:
            broker.delete(f"{path}/{in_path(binding['properties_key'])}")
            output.done(f"{destination} is no longer bound to {source} by '{routing_key}'")
            return
    typer.echo(f"leveret ctl: {destination} has no such binding to {source}", err=True)
    raise typer.Exit(1)


def _bindings(vhost: str, source: str, destination: str, to_exchange: bool) -> str:
    to = "e" if to_exchange else "q"
    return f"/api/bindings/{in_path(vhost)}/e/{in_path(source)}/{to}/{in_path(destination)}"


@asks
def purge(broker: Broker, output: Output, name: Name, vhost: Vhost = "/") -> None:
    """Drop every ready message of a queue."""
    found = broker.delete(f"/api/queues/{in_path(vhost, name)}/contents")
    count = found.get("messages_deleted", 0) if isinstance(found, dict) else 0
    output.done(f"{count} messages of {name} are dropped", found)


@asks
def pause(broker: Broker, output: Output, name: Name, vhost: Vhost = "/") -> None:
    """Deliver nothing of a queue until it is resumed; it goes on taking messages."""
    broker.put(f"/api/queues/{in_path(vhost, name)}/pause")
    output.done(f"queue {name} is paused")


@asks
def resume(broker: Broker, output: Output, name: Name, vhost: Vhost = "/") -> None:
    """Deliver again what a paused queue holds."""
    broker.delete(f"/api/queues/{in_path(vhost, name)}/pause")
    output.done(f"queue {name} is no longer paused")


@asks
def close_connection(
    broker: Broker,
    output: Output,
    name: Annotated[str, typer.Argument(help="Its name, as `list connections` shows it.")],
    reason: Annotated[str, typer.Option("--reason", help="What its client is told.")] = (
        "closed by an operator"
    ),
) -> None:
    """Close a connection."""
    broker.delete(f"/api/connections/{in_path(name)}", {"X-Reason": reason})
    output.done(f"connection {name} is closed")
