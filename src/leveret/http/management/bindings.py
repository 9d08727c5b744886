"""Bindings: list, create and delete them.

A binding has no name. `properties_key` identifies it among the bindings of one source and one
destination: `~` without key and arguments, the percent-encoded key without arguments, `key~hash`
with arguments. RabbitMQ: its hash is computed from Erlang's terms, ours from the bytes of the
arguments. Clients read the key and send it back; they never compute it.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote
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


class BindingRow(NamedTuple):
    """One binding, before it is converted to JSON."""

    vhost: str
    source: str
    is_queue: bool
    destination: str
    routing_key: str
    arguments: Table


def properties_key(routing_key: str, arguments: Table) -> str:
    """Return the key that identifies a binding between its source and destination."""
    key = quote(routing_key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if not arguments:
        return key or "~"
    canonical = encode_table({name: arguments[name] for name in sorted(arguments)})
    digest = crc32(canonical).to_bytes(4, "big")
    return f"{key}~{urlsafe_b64encode(digest).decode().rstrip('=')}"


def binding_info(bound: BindingRow) -> BindingInfo:
    return BindingInfo(
        printable(bound.source),
        printable(bound.vhost),
        printable(bound.destination),
        "queue" if bound.is_queue else "exchange",
        printable(bound.routing_key),
        plain_table(bound.arguments),
        properties_key(bound.routing_key, bound.arguments),
    )


def _bound(vhost: Vhost, binding: Binding) -> BindingRow:
    return BindingRow(
        vhost.name,
        binding.source,
        binding.is_queue,
        binding.target.name,
        binding.routing_key,
        binding.arguments,
    )


def _default(vhost: Vhost, queue: str) -> BindingRow:
    """Return the binding of a queue to the default exchange, which every queue has."""
    return BindingRow(vhost.name, "", True, queue, queue, {})


def bindings_in(vhost: Vhost) -> Iterator[BindingRow]:
    """Yield all bindings of a vhost."""
    for name in vhost.queues:
        yield _default(vhost, name)
    for exchange in vhost.exchanges.values():
        for binding in exchange.bindings.values():
            yield _bound(vhost, binding)


def bindings_from(vhost: Vhost, source: str) -> Iterator[BindingRow]:
    """Yield the bindings from one exchange."""
    if not source:
        for name in vhost.queues:
            yield _default(vhost, name)
    for binding in vhost.exchange(source).bindings.values():
        yield _bound(vhost, binding)


def bindings_to(vhost: Vhost, target: Target) -> Iterator[BindingRow]:
    """Yield the bindings to one queue or exchange."""
    if isinstance(target, Queue):
        yield _default(vhost, target.name)
    for exchange in vhost.sources.get(target, {}).values():
        for binding in exchange.bindings_to(target):
            yield _bound(vhost, binding)


async def answer_bindings(request: Request, found: Iterator[BindingRow]) -> Response:
    return await answer_list(request, list(found), _name, binding_info)


def _name(bound: BindingRow) -> str:
    """Return the text that `name` is compared with: bindings have no name, but a destination."""
    return printable(bound.destination)


async def list_bindings(request: Request) -> Response:
    vhosts = listed_vhosts(request)
    return await answer_bindings(request, (b for vhost in vhosts for b in bindings_in(vhost)))


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


def _between(request: Request, vhost: Vhost) -> list[BindingRow]:
    source, target = _pair(request, vhost)
    if target is None:
        return []
    return [bound for bound in bindings_to(vhost, target) if bound.source == source]


async def list_pair(request: Request) -> Response:
    return await answer_bindings(request, iter(_between(request, seen_vhost(request))))


def _named(request: Request, vhost: Vhost) -> BindingRow:
    """Return the binding that the path names by its properties key, encoded once or twice.

    RabbitMQ: the path may also have the routing key, with characters such as `*` unencoded.
    """
    raw = request.path_params["properties_key"]
    decoded = part_of(request, "properties_key")
    wanted = {raw, decoded}
    if "~" not in decoded:
        wanted.add(properties_key(decoded, {}))
    for bound in _between(request, vhost):
        if properties_key(bound.routing_key, bound.arguments) in wanted:
            return bound
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
    bound = _named(request, vhost)
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
