"""Shovels over HTTP, as RabbitMQ shows them. They are made and changed as runtime parameters.

    GET    /api/shovels                              all that the user may see
    GET    /api/shovels/{vhost}                      those of a vhost
    GET    /api/shovels/vhost/{vhost}/{name}         one
    DELETE /api/shovels/vhost/{vhost}/{name}         end it, and forget it
    DELETE /api/shovels/vhost/{vhost}/{name}/restart end it, and begin anew

Addresses are shown without passwords. Ours besides: `messages`, how many were carried.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.answers import json
from leveret.http.framework.login import facts_of, part_of, user_of, vhost_of
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Needs, Operation
from leveret.shovels.settings import HTTP
from leveret.shovels.status import ShovelStatus


class ShovelInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One shovel."""

    name: str
    vhost: str
    node: str
    type: str
    state: str  # starting, running, terminated
    timestamp: str  # since when
    src_protocol: str
    dest_protocol: str
    src_uri: str
    dest_uri: str
    messages: int
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
    facts = facts_of(request)
    user = user_of(request)
    found = [shovel for shovel in facts.shovels.all() if user.may_see(shovel.vhost)]
    return json([shovel_info(facts, shovel) for shovel in found])


async def list_vhost_shovels(request: Request) -> Response:
    facts = facts_of(request)
    vhost = vhost_of(request)
    facts.broker.vhost(vhost)
    return json([shovel_info(facts, shovel) for shovel in facts.shovels.all(vhost)])


async def get_shovel(request: Request) -> Response:
    facts = facts_of(request)
    return json(shovel_info(facts, facts.shovels.get(vhost_of(request), part_of(request, "name"))))


async def delete_shovel(request: Request) -> Response:
    await facts_of(request).shovels.delete(vhost_of(request), part_of(request, "name"))
    return Response(status_code=204)


async def restart_shovel(request: Request) -> Response:
    facts_of(request).shovels.restart(vhost_of(request), part_of(request, "name"))
    return Response(status_code=204)


def shovel_info(facts: NodeView, shovel: ShovelStatus) -> ShovelInfo:
    settings = shovel.settings
    since = datetime.fromtimestamp(shovel.since_ms / 1000, UTC)
    return ShovelInfo(
        name=shovel.name,
        vhost=shovel.vhost,
        node=facts.node_name,
        type="dynamic",
        state=shovel.state,
        timestamp=since.strftime("%Y-%m-%d %H:%M:%S"),
        src_protocol=settings.src_protocol,
        dest_protocol=settings.dest_protocol,
        src_uri=settings.shown_src_uri,
        dest_uri=settings.shown_dest_uri,
        messages=shovel.moved,
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
        about="All shovels that the user may see.",
        group="shovels",
        needs=Needs.MONITORING,
        answer=list[ShovelInfo],
    ),
    Operation(
        method="GET",
        path="/api/shovels/{vhost}",
        handler=list_vhost_shovels,
        about="The shovels of a vhost.",
        group="shovels",
        needs=Needs.MONITORING,
        answer=list[ShovelInfo],
    ),
    Operation(
        method="GET",
        path="/api/shovels/vhost/{vhost}/{name}",
        handler=get_shovel,
        about="One shovel.",
        group="shovels",
        needs=Needs.MONITORING,
        answer=ShovelInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/shovels/vhost/{vhost}/{name}",
        handler=delete_shovel,
        about="End a shovel, and forget it.",
        group="shovels",
        needs=Needs.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/shovels/vhost/{vhost}/{name}/restart",
        handler=restart_shovel,
        about="End a shovel, and begin anew.",
        group="shovels",
        needs=Needs.POLICYMAKER,
        status=204,
    ),
)
