"""Commands of `leveret ctl` that publish, get, find, explain and trace messages."""

import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli.ctl.objects import parse_pairs, parse_properties
from leveret.cli.shared.management import ManagementClient, RefusedError, quote_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, Row, broker_command, format_time

_COLUMNS: Final = (
    "id",
    "state",
    "exchange",
    "routing_key",
    "redelivered",
    "payload_bytes",
    "properties",
    "payload",
)
_SHOWN_CHARS: Final = 200  # of a body in a table
_HOLDERS_MAX: Final = 10  # holders shown for one reason

Queue = Annotated[str, typer.Argument(help="The queue.")]
Count = Annotated[int, typer.Option("--count", "-n", help="Maximum number of messages.")]


@broker_command
def publish(
    broker: ManagementClient,
    output: Output,
    body: Annotated[str, typer.Argument(help="The body; - reads standard input.")] = "-",
    exchange: Annotated[
        str, typer.Option("--exchange", "-e", help="The exchange. Default: the default exchange.")
    ] = "",
    routing_key: Annotated[
        str,
        typer.Option(
            "--routing-key", "-k", help="The routing key; for the default exchange the queue name."
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--file", help="Read the body from this file.")
    ] = None,
    persistent: Annotated[
        bool,
        typer.Option("--persistent/--transient", help="Whether the message survives a restart."),
    ] = True,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="Header KEY=VALUE. Repeatable.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", help="Property such as content_type=text/plain. Repeatable."
        ),
    ] = None,
    vhost: Vhost = "/",
) -> None:
    """Publish one message. A persistent message is on disk when the command returns."""
    data = file.read_bytes() if file is not None else _read_body(body)
    properties = {"delivery_mode": 2 if persistent else 1, **parse_properties(property_)}
    if header:
        properties["headers"] = parse_pairs(header)
    message = {
        "routing_key": routing_key,
        "properties": properties,
        "payload": b64encode(data).decode(),
        "payload_encoding": "base64",
    }
    name = exchange or "amq.default"
    found = broker.post(f"/api/exchanges/{quote_path(vhost, name)}/publish", message)
    if not found["routed"]:
        typer.echo("leveret ctl: not published: no queue is bound for it", err=True)
        raise typer.Exit(1)
    output.done("published", found)


def _read_body(body: str) -> bytes:
    return sys.stdin.buffer.read() if body == "-" else body.encode()


@broker_command
def get(
    broker: ManagementClient,
    output: Output,
    queue: Queue,
    count: Count = 1,
    requeue: Annotated[
        bool, typer.Option("--requeue/--consume", help="Put the messages back, or remove them.")
    ] = True,
    vhost: Vhost = "/",
) -> None:
    """Get messages as a client would. `peek` shows messages without changing anything."""
    mode = "ack_requeue_true" if requeue else "ack_requeue_false"
    body = {"count": count, "ackmode": mode, "encoding": "auto"}
    _print(output, broker.post(f"/api/queues/{quote_path(vhost, queue)}/get", body))


@broker_command
def peek(
    broker: ManagementClient,
    output: Output,
    queue: Queue,
    count: Count = 10,
    offset: Annotated[int, typer.Option("--offset", help="Skip this number of messages.")] = 0,
    newest: Annotated[bool, typer.Option("--newest", help="Start at the newest message.")] = False,
    vhost: Vhost = "/",
) -> None:
    """Show messages without changing anything."""
    query = f"count={count}&offset={offset}&from_end={'true' if newest else 'false'}"
    _print(output, broker.get(f"/api/queues/{quote_path(vhost, queue)}/peek?{query}"))


def make_filter(
    headers: list[str] | None,
    properties: list[str] | None,
    json_paths: list[str] | None,
    text: str | None,
    older_than_s: float | None,
) -> dict[str, Any]:
    """Return the filter object of the HTTP API."""
    found: dict[str, Any] = {}
    if headers:
        found["headers"] = parse_pairs(headers)
    if properties:
        found["properties"] = parse_properties(properties)
    if json_paths:
        found["json"] = parse_pairs(json_paths)
    if text is not None:
        found["text"] = text
    if older_than_s is not None:
        found["older_than_ms"] = round(older_than_s * 1000)
    return found


Header = Annotated[
    list[str] | None,
    typer.Option("--header", help="Messages with this header: KEY=VALUE. Repeatable."),
]
Property = Annotated[
    list[str] | None,
    typer.Option("--property", help="Messages with this property: KEY=VALUE. Repeatable."),
]
JsonPath = Annotated[
    list[str] | None,
    typer.Option("--json-path", help="JSON bodies with this value: $.order.id=5. Repeatable."),
]
Text = Annotated[str | None, typer.Option("--text", help="Bodies that contain this text.")]
OlderThan = Annotated[
    float | None,
    typer.Option("--older-than-s", help="Messages that are at least this many seconds old."),
]


@broker_command
def search(
    broker: ManagementClient,
    output: Output,
    queue: Queue,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    count: Count = 100,
    vhost: Vhost = "/",
) -> None:
    """Find messages anywhere in a queue. Changes nothing."""
    body = make_filter(header, property_, json_path, text, older_than_s)
    path = f"/api/queues/{quote_path(vhost, queue)}/search"
    found: list[Row] = []
    cursor: str | None = None
    while len(found) < count:
        page = broker.post(path, {**body, "limit": count - len(found), "cursor": cursor})
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    _print(output, found)


@broker_command
def unacked(broker: ManagementClient, output: Output, queue: Queue, vhost: Vhost = "/") -> None:
    """List unacknowledged messages and who holds them."""
    found = broker.get(f"/api/queues/{quote_path(vhost, queue)}/unacked")
    columns = (
        "id,age_ms,deliveries,holder.connection,holder.channel,holder.consumer_tag,routing_key"
    )
    output.table(found["items"], columns.split(","))


@broker_command
def explain(
    broker: ManagementClient,
    output: Output,
    queue: Queue,
    message: Annotated[
        str | None, typer.Argument(help="Id of one message, as `peek` and `trace` show it.")
    ] = None,
    vhost: Vhost = "/",
) -> None:
    """Explain why a queue or one message is not delivered."""
    path = f"/api/queues/{quote_path(vhost, queue)}"
    if message is not None:
        path += f"/messages/{quote_path(message)}"
    found = broker.get(f"{path}/explain")
    if output.as_json:
        output.facts(found)
        return
    if found["moving"] and not found["reasons"]:
        typer.echo("Nothing blocks delivery.")
    names = _connection_names(broker) if any(map(_holders, found["reasons"])) else {}
    for reason in found["reasons"]:
        typer.echo(reason["text"])
        for holder in _holders(reason)[:_HOLDERS_MAX]:
            typer.echo(f"  {_describe_holder(holder, names)}")


def _holders(reason: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the consumers and channels that a reason is about."""
    details = reason.get("details") or {}
    holder = details.get("holder")
    found: list[dict[str, Any]] = details.get("holders") or ([holder] if holder else [])
    return found


def _connection_names(broker: ManagementClient) -> dict[str, str]:
    """Return the names that clients gave their connections, by the broker's names.

    A user who may not see connections gets none.
    """
    try:
        found = broker.get("/api/connections?columns=name,user_provided_name")
    except RefusedError:
        return {}
    return {c["name"]: c["user_provided_name"] for c in found if c.get("user_provided_name")}


def _describe_holder(holder: dict[str, Any], names: dict[str, str]) -> str:
    connection = holder.get("connection")
    text = f"{holder['consumer_tag']} on " if holder.get("consumer_tag") else ""
    text += names.get(connection, connection) if connection else "a connection"
    if holder.get("channel") is not None:
        text += f", channel {holder['channel']}"
    if holder.get("user"):
        text += f", user {holder['user']}"
    if holder.get("unacked") is not None:
        most = f" of {holder['prefetch']} (prefetch)" if holder.get("prefetch") else ""
        text += f": {holder['unacked']}{most} in flight"
    return text


@broker_command
def trace(
    broker: ManagementClient,
    output: Output,
    message_id: Annotated[str, typer.Argument(help="The message_id property of the message.")],
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only this vhost.")] = None,
) -> None:
    """Show which queues hold a message, and its life events. Exit code 1 if there are none."""
    query = f"?message_id={quote_path(message_id)}"
    if vhost is not None:
        query += f"&vhost={quote_path(vhost)}"
    found = broker.get(f"/api/trace{query}")
    while found["cursor"] is not None:  # an answer ends after a while, or after many places
        more = broker.get(f"/api/trace{query}&cursor={quote_path(found['cursor'])}")
        for field in ("places", "events"):
            more[field] = found[field] + more[field]
        more["scanned"] += found["scanned"]
        found = more
    found["events"].sort(key=lambda event: event["time_ms"])
    if output.as_json:
        output.facts(found)
    else:
        _print_trace(found)
    if not found["places"] and not found["events"]:
        typer.echo(
            "leveret ctl: no queue holds the message now; what happened to it is known only if a "
            "queue or exchange on its way has x-remember",
            err=True,
        )
        raise typer.Exit(1)


def _print_trace(found: Row) -> None:
    for place in found["places"]:
        where = f"{place['queue']} of vhost {place['vhost']}"
        typer.echo(f"{place['state']} in {where}, id {place['id']}")
    for event in found["events"]:
        when = format_time(event["time_ms"])
        typer.echo(f"{when}  {event['event']}  {event.get('queue') or ''}")


@broker_command
def route(
    broker: ManagementClient,
    output: Output,
    exchange: Annotated[str, typer.Argument(help="The exchange.")],
    routing_key: Annotated[str, typer.Option("--routing-key", "-k", help="The routing key.")] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", help="Header KEY=VALUE. Repeatable.")
    ] = None,
    vhost: Vhost = "/",
) -> None:
    """Show which queues a message would reach."""
    body = {"routing_key": routing_key, "headers": parse_pairs(header)}
    name = exchange or "amq.default"
    found = broker.post(f"/api/exchanges/{quote_path(vhost, name)}/route", body)
    if output.as_json:
        output.facts(found)
    else:
        typer.echo("\n".join(found["queues"]) if found["queues"] else "no queue")


def _print(output: Output, messages: list[Row]) -> None:
    if not output.as_json:
        messages = [{**m, "payload": str(m.get("payload", ""))[:_SHOWN_CHARS]} for m in messages]
    known = [name for name in _COLUMNS if not messages or any(name in m for m in messages)]
    output.table(messages, known)
