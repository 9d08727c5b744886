"""Bindings: list, create and delete them.

A binding has no name. `properties_key` identifies it among the bindings of one source and one
destination: `~` without key and arguments, the percent-encoded key without arguments, `key~hash`
with arguments. RabbitMQ: its hash is computed from Erlang's terms, ours from the bytes of the
arguments. Clients read the key and send it back; they never compute it.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ, WRITE
from leveret.engine.exchanges.binding import Binding
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.vhosts.names import require_not_default
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import NotFoundError
from leveret.http.framework.listing import LIST_QUERY, answer_list
from leveret.http.framework.names import arguments_of, printable, require_short
from leveret.http.framework.operations import Operation, body_of
from leveret.http.framework.permissions import (
    exchange_in,
    exchange_name,
    listed_vhosts,
    queue_in,
    require,
    require_topic,
    require_way_in,
    seen_vhost,
    used_vhost,
)
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.wire.tables import Table, encode_table, plain_table

QUEUE_KIND: Final = "q"
EXCHANGE_KIND: Final = "e"
_ANY_BYTES: Final = "surrogateescape"  # names may have bytes that are not UTF-8


class BindingInfo(msgspec.Struct):
    """One binding."""

    source: str
    vhost: str
    destination: str
    destination_type: str  # "queue" or "exchange"
    routing_key: str
    arguments: dict[str, object]
    properties_key: str


class NewBinding(msgspec.Struct):
    """Body of POST: routing key and arguments of the binding."""

    routing_key: str = ""
    arguments: dict[str, Any] = {}


# The name of a vhost, and a binding of it. A queue stands for its binding to the default exchange.
# A list of entries is made in one go, and may be long: an entry costs far less than its row.
Entry = tuple[str, Binding | Queue]


class BindingRow(NamedTuple):
    """The fields of one binding."""

    vhost: str
    source: str
    is_queue: bool
    destination: str
    routing_key: str
    arguments: Table


def properties_key(routing_key: str, arguments: Table) -> str:
    """Return the key that identifies a binding between its source and destination."""
    key = quote(routing_key.encode("utf-8", _ANY_BYTES), safe="").replace("~", "%7E")
    if not arguments:
        return key or "~"
    canonical = encode_table({name: arguments[name] for name in sorted(arguments)})
    digest = crc32(canonical).to_bytes(4, "big")
    return f"{key}~{urlsafe_b64encode(digest).decode().rstrip('=')}"


def binding_info(entry: Entry) -> BindingInfo:
    bound = _binding_row(entry)
    return BindingInfo(
        printable(bound.source),
        printable(bound.vhost),
        printable(bound.destination),
        "queue" if bound.is_queue else "exchange",
        printable(bound.routing_key),
        plain_table(bound.arguments),
        properties_key(bound.routing_key, bound.arguments),
    )


def _binding_row(entry: Entry) -> BindingRow:
    vhost, bound = entry
    if isinstance(bound, Queue):
        return BindingRow(vhost, "", True, bound.name, bound.name, {})
    return BindingRow(
        vhost, bound.source, bound.is_queue, bound.target.name, bound.routing_key, bound.arguments
    )


def bindings_in(vhost: Vhost) -> Iterator[Entry]:
    """Return all bindings of a vhost."""
    bindings = (each.bindings.values() for each in vhost.exchanges.values())
    return _entries(vhost, chain(vhost.queues.values(), chain.from_iterable(bindings)))


def bindings_from(vhost: Vhost, source: str) -> Iterator[Entry]:
    """Return the bindings from one exchange."""
    queues = () if source else vhost.queues.values()
    return _entries(vhost, chain(queues, vhost.exchange(source).bindings.values()))


def bindings_to(vhost: Vhost, target: Target) -> Iterator[Entry]:
    """Return the bindings to one queue or exchange."""
    queues = (target,) if isinstance(target, Queue) else ()
    sources = vhost.sources.get(target, {}).values()
    bindings = (exchange.bindings_to(target) for exchange in sources)
    return _entries(vhost, chain(queues, chain.from_iterable(bindings)))


def _entries(vhost: Vhost, found: Iterable[Binding | Queue]) -> Iterator[Entry]:
    return zip(repeat(vhost.name), found)


async def answer_bindings(request: Request, found: Iterable[Entry]) -> Response:
    return await answer_list(request, list(found), _name, binding_info)


def _name(entry: Entry) -> str:
    """Return the text that `name` is compared with: bindings have no name, but a destination."""
    bound = entry[1]
    return printable(bound.name if isinstance(bound, Queue) else bound.target.name)


async def list_bindings(request: Request) -> Response:
    found = map(bindings_in, listed_vhosts(request))
    return await answer_bindings(request, chain.from_iterable(found))


async def list_source_bindings(request: Request) -> Response:
    vhost = seen_vhost(request)
    exchange = exchange_in(vhost, part_of(request, "name"))
    return await answer_bindings(request, bindings_from(vhost, exchange.name))


async def list_destination_bindings(request: Request) -> Response:
    vhost = seen_vhost(request)
    exchange = exchange_in(vhost, part_of(request, "name"))
    return await answer_bindings(request, bindings_to(vhost, exchange))


async def list_queue_bindings(request: Request) -> Response:
    vhost = seen_vhost(request)
    queue = queue_in(vhost, part_of(request, "name"))
    return await answer_bindings(request, bindings_to(vhost, queue))


def _pair(request: Request, vhost: Vhost) -> tuple[str, Target | None]:
    """Return source and destination of the path; None for a destination that does not exist."""
    kind = part_of(request, "kind")
    destination = part_of(request, "destination")
    source = exchange_name(part_of(request, "source"))
    if kind == QUEUE_KIND:
        return source, vhost.queues.get(destination)
    if kind == EXCHANGE_KIND:
        return source, vhost.exchanges.get(exchange_name(destination))
    raise HTTPException(404, "Not Found")


def _between(request: Request, vhost: Vhost) -> Iterable[Entry]:
    source, target = _pair(request, vhost)
    if not source and isinstance(target, Queue):
        return _entries(vhost, (target,))
    exchange = vhost.exchanges.get(source)
    if target is None or exchange is None:
        return ()
    return _entries(vhost, exchange.bindings_to(target))


async def list_pair(request: Request) -> Response:
    return await answer_bindings(request, _between(request, seen_vhost(request)))


def _named(request: Request, vhost: Vhost) -> Entry:
    """Return the binding that the path names by its properties key, encoded once or twice.

    RabbitMQ: the path may also have the routing key, with characters such as `*` unencoded.
    """
    raw = request.path_params["properties_key"]
    decoded = part_of(request, "properties_key")
    wanted = {raw, decoded}
    if "~" not in decoded:
        wanted.add(properties_key(decoded, {}))
    # There may be 1,000,000 bindings: only those with the right routing key get a properties key.
    keys = {decoded, *(unquote(key.partition("~")[0], errors=_ANY_BYTES) for key in wanted)}
    for entry in _between(request, vhost):
        bound = entry[1]
        key = bound.name if isinstance(bound, Queue) else bound.routing_key
        if key in keys:
            row = _binding_row(entry)
            if properties_key(row.routing_key, row.arguments) in wanted:
                return entry
    raise HTTPException(404, "Not Found")


async def get_binding(request: Request) -> Response:
    return json_response(binding_info(_named(request, seen_vhost(request))))


async def create_binding(request: Request) -> Response:
    vhost = used_vhost(request)
    body = await body_of(request, NewBinding)
    source, target = _pair(request, vhost)
    vhost.exchange(source)
    if target is None:
        what = "queue" if part_of(request, "kind") == QUEUE_KIND else "exchange"
        name = part_of(request, "destination")
        raise NotFoundError(f"no {what} '{name}' in vhost '{vhost.name}'")
    key = require_short("routing_key", body.routing_key)
    arguments = arguments_of(body.arguments)
    _require_binding(request, vhost, source, target, key)
    if not isinstance(target, Queue):
        require_way_in(request, vhost, target.name)
    node = node_of(request)
    with node.turn():
        vhost.bind(source, target, key, arguments)
    await node.synced()
    name = quote(part_of(request, "destination"), safe="")
    location = f"{name}/{quote(properties_key(key, arguments), safe='~')}"
    return Response(status_code=201, headers={"Location": location})


async def delete_binding(request: Request) -> Response:
    vhost = used_vhost(request)
    bound = _binding_row(_named(request, vhost))
    _, target = _pair(request, vhost)
    assert target is not None
    _require_binding(request, vhost, bound.source, target, bound.routing_key)
    node = node_of(request)
    with node.turn():
        vhost.unbind(bound.source, target, bound.routing_key, bound.arguments)
    await node.synced()
    return Response(status_code=204)


def _require_binding(request: Request, vhost: Vhost, source: str, target: Target, key: str) -> None:
    """Check permissions as AMQP does: write on the destination, read on the source.

    Exclusive queues are locked for other connections, and so for HTTP.
    """
    require_not_default(source)
    what = "queue" if isinstance(target, Queue) else "exchange"
    if what == "exchange":
        require_not_default(target.name)
    require(request, WRITE, vhost, what, target.name)
    require(request, READ, vhost, "exchange", source)
    require_topic(request, READ, vhost, vhost.exchange(source), key)
    if what == "queue":
        vhost.queue(target.name, None)


_GROUP: Final = "bindings"
_PAIR: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
_list = partial(Operation, method="GET", group=_GROUP, query=LIST_QUERY, answer=list[BindingInfo])
OPERATIONS: Final = (
    _list(
        path="/api/bindings",
        handler=list_bindings,
        summary="List the bindings of all vhosts that the user may see.",
    ),
    _list(
        path="/api/bindings/{vhost}", handler=list_bindings, summary="List the bindings of a vhost."
    ),
    _list(
        path="/api/exchanges/{vhost}/{name}/bindings/source",
        handler=list_source_bindings,
        summary="List the bindings from an exchange.",
    ),
    _list(
        path="/api/exchanges/{vhost}/{name}/bindings/destination",
        handler=list_destination_bindings,
        summary="List the bindings to an exchange.",
    ),
    _list(
        path="/api/queues/{vhost}/{name}/bindings",
        handler=list_queue_bindings,
        summary="List the bindings to a queue.",
    ),
    _list(
        path=_PAIR,
        handler=list_pair,
        summary="List the bindings from an exchange to a queue (q) or an exchange (e).",
    ),
    Operation(
        method="POST",
        path=_PAIR,
        handler=create_binding,
        summary="Create a binding; the header Location names it.",
        group=_GROUP,
        body=NewBinding,
        status=201,
    ),
    Operation(
        method="GET",
        path=f"{_PAIR}/{{properties_key}}",
        handler=get_binding,
        summary="Return one binding.",
        group=_GROUP,
        answer=BindingInfo,
    ),
    Operation(
        method="DELETE",
        path=f"{_PAIR}/{{properties_key}}",
        handler=delete_binding,
        summary="Delete a binding.",
        group=_GROUP,
        status=204,
    ),
)
