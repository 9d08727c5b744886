"""Federation links in RabbitMQ's form. Upstreams are runtime parameters; policies make the links.

    GET    /api/federation-links                                     list all links
    GET    /api/federation-links/{vhost}                             list the links of a vhost
    GET    /api/federation-links/state/down                          list links that do not run
    GET    /api/federation-links/{vhost}/state/down                  the same, of a vhost
    DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart   restart a link

RabbitMQ does not have the fields `messages`, the number of messages carried, and `owner`, the user
with whose permissions the link acts. It has `local_channel`, which Leveret lacks: a link publishes
without a channel.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import NotFoundError
from leveret.federation.manager import ERROR, EXCHANGE, LinkStatus
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response


class FederationLinkInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One federation link."""

    node: str
    type: str  # exchange, queue
    vhost: str
    upstream: str
    id: str
    status: str  # starting, running, error
    uri: str
    timestamp: str  # when the status began
    messages: int
    owner: str | None  # the user with whose permissions it acts
    exchange: str | None = None
    upstream_exchange: str | None = None
    queue: str | None = None
    upstream_queue: str | None = None
    consumer_tag: str | None = None
    error: str | None = None


async def list_links(request: Request) -> Response:
    node = node_of(request)
    user = user_of(request)
    found = [link for link in node.federation.all() if user.may_see(link.key.vhost)]
    return json_response([link_info(node, link) for link in _filtered(request, found)])


async def list_vhost_links(request: Request) -> Response:
    node = node_of(request)
    vhost = vhost_of(request)
    node.broker.vhost(vhost)
    found = _filtered(request, node.federation.all(vhost))
    return json_response([link_info(node, link) for link in found])


async def restart_link(request: Request) -> Response:
    node = node_of(request)
    if part_of(request, "node") != node.node_name:
        raise NotFoundError("no such node")
    node.federation.restart(vhost_of(request), part_of(request, "id"))
    return Response(status_code=204)


def _filtered(request: Request, links: list[LinkStatus]) -> list[LinkStatus]:
    if request.url.path.rstrip("/").endswith("/state/down"):
        return [link for link in links if link.status == ERROR]
    return links


def link_info(node: NodeView, link: LinkStatus) -> FederationLinkInfo:
    since = datetime.fromtimestamp(link.since_ms / 1000, UTC)
    key = link.key
    is_exchange = key.type == EXCHANGE
    return FederationLinkInfo(
        node=node.node_name,
        type=key.type,
        vhost=key.vhost,
        upstream=key.upstream,
        id=link.id,
        status=link.status,
        uri=link.uri,
        timestamp=since.strftime("%Y-%m-%d %H:%M:%S"),
        messages=link.moved,
        owner=link.owner,
        exchange=key.name if is_exchange else None,
        upstream_exchange=(link.upstream.exchange or key.name) if is_exchange else None,
        queue=None if is_exchange else key.name,
        upstream_queue=None if is_exchange else (link.upstream.queue or key.name),
        consumer_tag=None if is_exchange else link.upstream.consumer_tag,
        error=link.error,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/federation-links",
        handler=list_links,
        summary="List all federation links that the user may see.",
        group="federation",
        access=Access.MONITORING,
        answer=list[FederationLinkInfo],
    ),
    Operation(
        method="GET",
        path="/api/federation-links/state/down",
        handler=list_links,
        summary="List the federation links that do not run.",
        group="federation",
        access=Access.MONITORING,
        answer=list[FederationLinkInfo],
    ),
    Operation(
        method="GET",
        path="/api/federation-links/{vhost}",
        handler=list_vhost_links,
        summary="List the federation links of a vhost.",
        group="federation",
        access=Access.MONITORING,
        answer=list[FederationLinkInfo],
    ),
    Operation(
        method="GET",
        path="/api/federation-links/{vhost}/state/down",
        handler=list_vhost_links,
        summary="List the federation links of a vhost that do not run.",
        group="federation",
        access=Access.MONITORING,
        answer=list[FederationLinkInfo],
    ),
    Operation(
        method="DELETE",
        path="/api/federation-links/vhost/{vhost}/{id}/{node}/restart",
        handler=restart_link,
        summary="Restart a federation link.",
        group="federation",
        access=Access.POLICYMAKER,
        status=204,
    ),
)
