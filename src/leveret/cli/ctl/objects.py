"""Commands of `leveret ctl` for queues, exchanges, bindings, vhosts and connections."""

import json
from typing import Annotated, Any, Final

import typer

from leveret.cli.shared.management import ManagementClient, quote_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, broker_command

declare = typer.Typer(no_args_is_help=True, help="Create an exchange, a queue or a vhost.")
delete = typer.Typer(no_args_is_help=True, help="Delete an exchange, a queue or a vhost.")

QueueName = Annotated[str, typer.Argument(help="Name of the queue.")]
ExchangeName = Annotated[str, typer.Argument(help="Name of the exchange.")]
VhostName = Annotated[str, typer.Argument(help="Name of the vhost.")]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument", "-a", help="Argument KEY=VALUE; the value is JSON or text. Repeatable."
    ),
]
Durable = Annotated[
    bool, typer.Option("--durable/--transient", help="Whether it survives a restart.")
]
AutoDelete = Annotated[
    bool, typer.Option("--auto-delete", help="Delete it when it is no longer used.")
]
IfUnused = Annotated[bool, typer.Option("--if-unused", help="Delete only if unused.")]

_NOT_TEXT: Final = ("headers", "delivery_mode", "priority", "timestamp")  # properties


def parse_pairs(given: list[str] | None) -> dict[str, Any]:
    """Parse KEY=VALUE pairs. A value that is not valid JSON is text."""
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


def parse_properties(given: list[str] | None) -> dict[str, Any]:
    """Parse KEY=VALUE pairs of AMQP properties. Most are text, even if they look like numbers."""
    found = parse_pairs(given)
    for pair in given or ():
        name, _, text = pair.partition("=")
        if name not in _NOT_TEXT and not isinstance(found[name], str):
            found[name] = text
    return found


@declare.command("queue")
@broker_command
def declare_queue(
    broker: ManagementClient,
    output: Output,
    name: QueueName,
    kind: Annotated[str | None, typer.Option("--type", help="classic, quorum or stream.")] = None,
    durable: Durable = True,
    auto_delete: AutoDelete = False,
    argument: Arguments = None,
    vhost: Vhost = "/",
) -> None:
    """Create a queue."""
    table = parse_pairs(argument)
    if kind is not None:
        table["x-queue-type"] = kind
    body = {"durable": durable, "auto_delete": auto_delete, "arguments": table}
    broker.put(f"/api/queues/{quote_path(vhost, name)}", body)
    output.done(f"queue {name} is declared")


@declare.command("exchange")
@broker_command
def declare_exchange(
    broker: ManagementClient,
    output: Output,
    name: ExchangeName,
    kind: Annotated[str, typer.Option("--type", help="direct, topic, fanout, headers, …")],
    durable: Durable = True,
    auto_delete: AutoDelete = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Clients cannot publish to it.")
    ] = False,
    argument: Arguments = None,
    vhost: Vhost = "/",
) -> None:
    """Create an exchange."""
    body = {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": parse_pairs(argument),
    }
    broker.put(f"/api/exchanges/{quote_path(vhost, name)}", body)
    output.done(f"exchange {name} is declared")


@declare.command("vhost")
@broker_command
def declare_vhost(
    broker: ManagementClient,
    output: Output,
    name: VhostName,
    description: Annotated[str, typer.Option("--description", help="Description.")] = "",
    default_queue_type: Annotated[
        str | None,
        typer.Option(
            "--default-queue-type", help="Type of queues that are declared without a type."
        ),
    ] = None,
    tracing: Annotated[
        bool, typer.Option("--tracing", help="Turn on the firehose: copy every message.")
    ] = False,
) -> None:
    """Create or change a vhost."""
    body: dict[str, Any] = {"description": description, "tracing": tracing}
    if default_queue_type is not None:
        body["default_queue_type"] = default_queue_type
    broker.put(f"/api/vhosts/{quote_path(name)}", body)
    output.done(f"vhost {name} is declared")


@delete.command("queue")
@broker_command
def delete_queue(
    broker: ManagementClient,
    output: Output,
    name: QueueName,
    if_unused: IfUnused = False,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Delete only if it has no messages.")
    ] = False,
    vhost: Vhost = "/",
) -> None:
    """Delete a queue and its messages."""
    wanted = [name for name, is_on in (("if-unused", if_unused), ("if-empty", if_empty)) if is_on]
    query = "?" + "&".join(f"{each}=true" for each in wanted) if wanted else ""
    broker.delete(f"/api/queues/{quote_path(vhost, name)}{query}")
    output.done(f"queue {name} is deleted")


@delete.command("exchange")
@broker_command
def delete_exchange(
    broker: ManagementClient,
    output: Output,
    name: ExchangeName,
    if_unused: IfUnused = False,
    vhost: Vhost = "/",
) -> None:
    """Delete an exchange and its bindings."""
    query = "?if-unused=true" if if_unused else ""
    broker.delete(f"/api/exchanges/{quote_path(vhost, name)}{query}")
    output.done(f"exchange {name} is deleted")


@delete.command("vhost")
@broker_command
def delete_vhost(broker: ManagementClient, output: Output, name: VhostName) -> None:
    """Delete a vhost and everything in it."""
    broker.delete(f"/api/vhosts/{quote_path(name)}")
    output.done(f"vhost {name} is deleted")


Source = Annotated[str, typer.Argument(help="The source exchange.")]
Destination = Annotated[str, typer.Argument(help="The queue; with --to-exchange, the exchange.")]
Key = Annotated[str, typer.Option("--routing-key", "-k", help="The binding key.")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="The destination is an exchange.")]


@broker_command
def bind(
    broker: ManagementClient,
    output: Output,
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    argument: Arguments = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = "/",
) -> None:
    """Bind a queue or an exchange to an exchange."""
    body = {"routing_key": routing_key, "arguments": parse_pairs(argument)}
    broker.post(_bindings_path(vhost, source, destination, to_exchange), body)
    output.done(f"{destination} is bound to {source}")


@broker_command
def unbind(
    broker: ManagementClient,
    output: Output,
    source: Source,
    destination: Destination,
    routing_key: Key = "",
    argument: Arguments = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = "/",
) -> None:
    """Remove a binding."""
    path = _bindings_path(vhost, source, destination, to_exchange)
    table = parse_pairs(argument)
    for binding in broker.get(path):
        if binding["routing_key"] == routing_key and binding["arguments"] == table:
            broker.delete(f"{path}/{quote_path(binding['properties_key'])}")
            output.done(f"{destination} is no longer bound to {source} by '{routing_key}'")
            return
    typer.echo(f"leveret ctl: {destination} has no such binding to {source}", err=True)
    raise typer.Exit(1)


def _bindings_path(vhost: str, source: str, destination: str, to_exchange: bool) -> str:
    to = "e" if to_exchange else "q"
    return (
        f"/api/bindings/{quote_path(vhost)}/e/{quote_path(source)}/{to}/{quote_path(destination)}"
    )


@broker_command
def purge(broker: ManagementClient, output: Output, name: QueueName, vhost: Vhost = "/") -> None:
    """Delete all ready messages of a queue."""
    found = broker.delete(f"/api/queues/{quote_path(vhost, name)}/contents")
    count = found.get("messages_deleted", 0) if isinstance(found, dict) else 0
    output.done(f"{count} messages of {name} are deleted", found)


@broker_command
def pause(broker: ManagementClient, output: Output, name: QueueName, vhost: Vhost = "/") -> None:
    """Stop deliveries from a queue. It still accepts messages."""
    broker.put(f"/api/queues/{quote_path(vhost, name)}/pause")
    output.done(f"queue {name} is paused")


@broker_command
def resume(broker: ManagementClient, output: Output, name: QueueName, vhost: Vhost = "/") -> None:
    """Resume deliveries from a paused queue."""
    broker.delete(f"/api/queues/{quote_path(vhost, name)}/pause")
    output.done(f"queue {name} is no longer paused")


@broker_command
def close_connection(
    broker: ManagementClient,
    output: Output,
    name: Annotated[
        str, typer.Argument(help="Name of the connection, as shown by `list connections`.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Reason sent to the client.")] = (
        "closed by an operator"
    ),
) -> None:
    """Close a connection."""
    broker.delete(f"/api/connections/{quote_path(name)}", {"X-Reason": reason})
    output.done(f"connection {name} is closed")
