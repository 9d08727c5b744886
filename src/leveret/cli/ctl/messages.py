"""`leveret ctl` for messages: publish, get, peek, search, explain, trace, and who holds them."""

import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli.ctl.objects import arguments_of
from leveret.cli.shared.management import Broker, in_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, Row, asks, moment

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
_SHOWN_BYTES: Final = 200  # of a body in a table

Queue = Annotated[str, typer.Argument(help="The queue.")]
Count = Annotated[int, typer.Option("--count", "-n", help="How many.")]


@asks
def publish(
    broker: Broker,
    output: Output,
    body: Annotated[str, typer.Argument(help="The body; - reads it from standard input.")] = "-",
    exchange: Annotated[str, typer.Option("--exchange", "-e", help="Where to.")] = "",
    routing_key: Annotated[str, typer.Option("--routing-key", "-k", help="Key, or queue.")] = "",
    file: Annotated[Path | None, typer.Option("--file", help="The body is this file.")] = None,
    persistent: Annotated[
        bool, typer.Option("--persistent/--transient", help="Outlives a restart.")
    ] = True,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="KEY=VALUE; repeat it.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", help="content_type=text/plain and so on; repeat it."),
    ] = None,
    vhost: Vhost = "/",
) -> None:
    """Publish one message; it is on disk when this returns."""
    data = file.read_bytes() if file is not None else _given(body)
    properties = {"delivery_mode": 2 if persistent else 1, **arguments_of(property_)}
    if header:
        properties["headers"] = arguments_of(header)
    message = {
        "routing_key": routing_key,
        "properties": properties,
        "payload": b64encode(data).decode(),
        "payload_encoding": "base64",
    }
    name = exchange or "amq.default"
    found = broker.post(f"/api/exchanges/{in_path(vhost, name)}/publish", message)
    if not found["routed"]:
        typer.echo("leveret ctl: no queue takes it: it was not published", err=True)
        raise typer.Exit(1)
    output.done("published", found)


def _given(body: str) -> bytes:
    return sys.stdin.buffer.read() if body == "-" else body.encode()


@asks
def get(
    broker: Broker,
    output: Output,
    queue: Queue,
    count: Count = 1,
    requeue: Annotated[
        bool, typer.Option("--requeue/--consume", help="Give them back, or take them for good.")
    ] = True,
    vhost: Vhost = "/",
) -> None:
    """Take messages as a client would. `peek` looks without a trace."""
    mode = "ack_requeue_true" if requeue else "ack_requeue_false"
    body = {"count": count, "ackmode": mode, "encoding": "auto"}
    _print(output, broker.post(f"/api/queues/{in_path(vhost, queue)}/get", body))


@asks
def peek(
    broker: Broker,
    output: Output,
    queue: Queue,
    count: Count = 10,
    offset: Annotated[int, typer.Option("--offset", help="Pass over so many.")] = 0,
    newest: Annotated[bool, typer.Option("--newest", help="From the end.")] = False,
    vhost: Vhost = "/",
) -> None:
    """Look at messages; nothing changes."""
    query = f"count={count}&offset={offset}&from_end={'true' if newest else 'false'}"
    _print(output, broker.get(f"/api/queues/{in_path(vhost, queue)}/peek?{query}"))


def filter_of(
    headers: list[str] | None,
    properties: list[str] | None,
    json_paths: list[str] | None,
    text: str | None,
    older_than_s: float | None,
) -> dict[str, Any]:
    """A filter as the search takes it."""
    found: dict[str, Any] = {}
    if headers:
        found["headers"] = arguments_of(headers)
    if properties:
        found["properties"] = arguments_of(properties)
    if json_paths:
        found["json"] = arguments_of(json_paths)
    if text is not None:
        found["text"] = text
    if older_than_s is not None:
        found["older_than_ms"] = round(older_than_s * 1000)
    return found


Header = Annotated[
    list[str] | None, typer.Option("--header", help="A header has this value: KEY=VALUE.")
]
Property = Annotated[
    list[str] | None, typer.Option("--property", help="A property has this value: KEY=VALUE.")
]
JsonPath = Annotated[
    list[str] | None, typer.Option("--json-path", help="In a JSON body: $.order.id=5.")
]
Text = Annotated[str | None, typer.Option("--text", help="The body holds this text.")]
OlderThan = Annotated[float | None, typer.Option("--older-than-s", help="At least so old.")]


@asks
def search(
    broker: Broker,
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
    """Find messages in a queue, wherever they are in it; nothing changes."""
    body = filter_of(header, property_, json_path, text, older_than_s)
    path = f"/api/queues/{in_path(vhost, queue)}/search"
    found: list[Row] = []
    cursor: str | None = None
    while len(found) < count:
        page = broker.post(path, {**body, "limit": count - len(found), "cursor": cursor})
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    _print(output, found)


@asks
def unacked(broker: Broker, output: Output, queue: Queue, vhost: Vhost = "/") -> None:
    """List what is delivered and not settled, and who holds it."""
    found = broker.get(f"/api/queues/{in_path(vhost, queue)}/unacked")
    columns = (
        "id,age_ms,deliveries,holder.connection,holder.channel,holder.consumer_tag,routing_key"
    )
    output.table(found["items"], columns.split(","))


@asks
def explain(
    broker: Broker,
    output: Output,
    queue: Queue,
    message: Annotated[str | None, typer.Argument(help="The id of one message.")] = None,
    vhost: Vhost = "/",
) -> None:
    """Say why a queue, or a message, does not move."""
    path = f"/api/queues/{in_path(vhost, queue)}"
    if message is not None:
        path += f"/messages/{in_path(message)}"
    found = broker.get(f"{path}/explain")
    if output.as_json:
        output.facts(found)
        return
    if found["moving"] and not found["reasons"]:
        typer.echo("Nothing holds it up.")
    for reason in found["reasons"]:
        typer.echo(reason["text"])


@asks
def trace(
    broker: Broker,
    output: Output,
    message_id: Annotated[str, typer.Argument(help="The message_id that its publisher gave.")],
    vhost: Annotated[str | None, typer.Option("--vhost", help="Of this vhost alone.")] = None,
) -> None:
    """Show where a message is, and what became of it."""
    query = f"?message_id={in_path(message_id)}"
    if vhost is not None:
        query += f"&vhost={in_path(vhost)}"
    found = broker.get(f"/api/trace{query}")
    if output.as_json:
        output.facts(found)
        return
    for place in found["places"]:
        typer.echo(f"{place['state']} in {place['queue']} of vhost {place['vhost']}")
    for event in found["events"]:
        when = moment(event["time_ms"])
        typer.echo(f"{when}  {event['event']}  {event.get('queue') or ''}")
    if not found["places"] and not found["events"]:
        typer.echo("It is nowhere.")


@asks
def route(
    broker: Broker,
    output: Output,
    exchange: Annotated[str, typer.Argument(help="The exchange.")],
    routing_key: Annotated[str, typer.Option("--routing-key", "-k", help="The key.")] = "",
    header: Annotated[
        list[str] | None, typer.Option("--header", help="KEY=VALUE; repeat it.")
    ] = None,
    vhost: Vhost = "/",
) -> None:
    """Show which queues a message would reach; none is published."""
    body = {"routing_key": routing_key, "headers": arguments_of(header)}
    name = exchange or "amq.default"
    found = broker.post(f"/api/exchanges/{in_path(vhost, name)}/route", body)
    if output.as_json:
        output.facts(found)
    else:
        typer.echo("\n".join(found["queues"]) if found["queues"] else "no queue")


def _print(output: Output, messages: list[Row]) -> None:
    if not output.as_json:
        messages = [{**m, "payload": str(m.get("payload", ""))[:_SHOWN_BYTES]} for m in messages]
    known = [name for name in _COLUMNS if not messages or any(name in m for m in messages)]
    output.table(messages, known)
