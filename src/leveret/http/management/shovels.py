"""Shovels in RabbitMQ's form. They are created and changed as runtime parameters.

    GET    /api/shovels                              list all that the user may see
    GET    /api/shovels/{vhost}                      list the shovels of a vhost
    GET    /api/shovels/vhost/{vhost}/{name}         return one
    DELETE /api/shovels/vhost/{vhost}/{name}         stop it and delete it
    DELETE /api/shovels/vhost/{vhost}/{name}/restart restart it

Addresses are shown without passwords. RabbitMQ does not have the fields `messages`, the number of
messages carried, and `owner`, the user with whose permissions the shovel acts.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import vhost_of
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.shovels.settings import HTTP
from leveret.shovels.status import ShovelStatus


class ShovelInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One shovel."""

    name: str
    vhost: str
    node: str
    type: str
    state: str  # starting, running, terminated
    timestamp: str  # when the state began
    src_protocol: str
    dest_protocol: str
    src_uri: str
    dest_uri: str
    messages: int
    owner: str | None  # the user with whose permissions it acts
    blocked_status: str
    reason: str | None = None
    remaining: int | None = None
    src_queue: str | None = None
    src_exchange: str | None = None
    src_exchange_key: str | None = None
    dest_queue: str | None = None
    dest_exchange: str | None = None
    dest_exchange_key: str | None = None


async def list_shovels(request: Request) -> Response:
    node = node_of(request)
    user = user_of(request)
    found = [shovel for shovel in node.shovels.all() if user.may_see(shovel.vhost)]
    return json_response([shovel_info(node, shovel) for shovel in found])


async def list_vhost_shovels(request: Request) -> Response:
    node = node_of(request)
    vhost = vhost_of(request)
    node.broker.vhost(vhost)
    return json_response([shovel_info(node, shovel) for shovel in node.shovels.all(vhost)])


async def get_shovel(request: Request) -> Response:
    node = node_of(request)
    return json_response(
        shovel_info(node, node.shovels.get(vhost_of(request), part_of(request, "name")))
    )


async def delete_shovel(request: Request) -> Response:
    await node_of(request).shovels.delete(vhost_of(request), part_of(request, "name"))
    return Response(status_code=204)


async def restart_shovel(request: Request) -> Response:
    node_of(request).shovels.restart(vhost_of(request), part_of(request, "name"))
    return Response(status_code=204)


def shovel_info(node: NodeView, shovel: ShovelStatus) -> ShovelInfo:
    settings = shovel.settings
    since = datetime.fromtimestamp(shovel.since_ms / 1000, UTC)
    return ShovelInfo(
        name=shovel.name,
        vhost=shovel.vhost,
        node=node.node_name,
        type="dynamic",
        state=shovel.state,
        timestamp=since.strftime("%Y-%m-%d %H:%M:%S"),
        src_protocol=settings.src_protocol,
        dest_protocol=settings.dest_protocol,
        src_uri=settings.shown_src_uri,
        dest_uri=settings.shown_dest_uri,
        messages=shovel.moved,
        owner=shovel.owner,
        blocked_status="running",
        reason=shovel.reason,
        remaining=shovel.remaining,
        src_queue=settings.src_queue,
        src_exchange=settings.src_exchange,
        src_exchange_key=settings.src_key or None,
        dest_queue=settings.dest_queue if settings.dest_protocol != HTTP else None,
        dest_exchange=settings.dest_exchange,
        dest_exchange_key=settings.dest_key,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/shovels",
        handler=list_shovels,
        summary="List all shovels that the user may see.",
        group="shovels",
        access=Access.MONITORING,
        answer=list[ShovelInfo],
    ),
    Operation(
        method="GET",
        path="/api/shovels/{vhost}",
        handler=list_vhost_shovels,
        summary="List the shovels of a vhost.",
        group="shovels",
        access=Access.MONITORING,
        answer=list[ShovelInfo],
    ),
    Operation(
        method="GET",
        path="/api/shovels/vhost/{vhost}/{name}",
        handler=get_shovel,
        summary="Return one shovel.",
        group="shovels",
        access=Access.MONITORING,
        answer=ShovelInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/shovels/vhost/{vhost}/{name}",
        handler=delete_shovel,
        summary="Stop a shovel and delete it.",
        group="shovels",
        access=Access.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/shovels/vhost/{vhost}/{name}/restart",
        handler=restart_shovel,
        summary="Restart a shovel.",
        group="shovels",
        access=Access.POLICYMAKER,
        status=204,
    ),
)
