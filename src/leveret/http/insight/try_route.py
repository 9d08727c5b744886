"""Find out where a message would go, without publishing it.

POST  /api/exchanges/{vhost}/{name}/route
"""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.commands.content import Content
from leveret.engine.commands.route_preview import preview_route
from leveret.http.framework.names import printable
from leveret.http.framework.operations import Operation, body_of
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import NAME_BYTES_MAX, table_of

_DEFAULT: Final = "amq.default"  # RabbitMQ: the name of the default exchange in paths


class RouteBody(msgspec.Struct):
    """Body of the request: routing key and headers of the message."""

    routing_key: str = ""
    headers: dict[str, object] = {}


class RouteResult(msgspec.Struct):
    """The queues and exchanges that the message would reach."""

    queues: list[str]
    exchanges: list[str]  # passed on the way, without the first
    held_by: list[str]  # delayed exchanges that would hold it until it is due
    alternate: bool  # an alternate exchange was needed
    routed: bool


async def find_route(request: Request) -> Response:
    vhost = node_of(request).broker.vhost(vhost_of(request))
    name = part_of(request, "name")
    body = await body_of(request, RouteBody)
    exchange = vhost.exchange("" if name == _DEFAULT else name)
    found = preview_route(vhost, exchange, _key(body.routing_key), _content(body.headers))
    return json_response(
        RouteResult(
            queues=sorted(printable(queue) for queue in found.queues),
            exchanges=sorted(printable(exchange) for exchange in found.exchanges),
            held_by=sorted(printable(exchange) for exchange in found.held_by),
            alternate=found.alternate,
            routed=found.routed,
        )
    )


def _key(routing_key: str) -> str:
    try:
        size = len(routing_key.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise HTTPException(400, "the routing key is not UTF-8 text") from None
    if size > NAME_BYTES_MAX:
        raise HTTPException(400, f"a routing key has at most {NAME_BYTES_MAX} bytes")
    return routing_key


def _content(headers: dict[str, object]) -> Content:
    properties = Properties()
    try:
        properties.headers = table_of(headers)
        return Content(encode_header(properties, 0))
    except (ValueError, OverflowError, RecursionError) as fault:
        raise HTTPException(400, f"headers: {fault}") from None


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/api/exchanges/{vhost}/{name}/route",
        handler=find_route,
        summary="Return where a message would go; nothing is published.",
        group="insight",
        body=RouteBody,
        answer=RouteResult,
        is_audited=False,
    ),
)
