"""Vhosts: list, create, change, protect and delete them."""

from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.insight.totals import VhostTotals
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import PreconditionFailedError
from leveret.http.framework.bodies import change_response, object_of
from leveret.http.framework.listing import LIST_QUERY, answer_list, flag_of
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.permissions import visible_vhosts
from leveret.http.framework.rates import Rate, RateSamples
from leveret.http.framework.request_parts import node_of, part_of, slices_of, user_of
from leveret.http.framework.responses import ErrorBody, json_response
from leveret.http.management.overview import queue_totals, totals_of, vhost_bytes, vhost_stats
from leveret.http.management.stats import PublisherStats, rates_of

CLASSIC: Final = "classic"
_EVERYTHING: Final = ".*"


class VhostBrief(msgspec.Struct, kw_only=True):
    """One vhost without statistics (`disable_stats`)."""

    name: str
    description: str
    tags: list[str]
    default_queue_type: str
    metadata: dict[str, object]
    tracing: bool
    protected_from_deletion: bool
    cluster_state: dict[str, str]


class VhostInfo(VhostBrief, kw_only=True):
    """One vhost."""

    messages: int
    messages_details: Rate
    messages_ready: int
    messages_ready_details: Rate
    messages_unacknowledged: int
    messages_unacknowledged_details: Rate
    message_stats: PublisherStats
    recv_oct: int
    recv_oct_details: Rate
    send_oct: int
    send_oct_details: Rate


class VhostBody(msgspec.Struct, omit_defaults=True):
    """Body of PUT."""

    description: str = ""
    tags: str | list[str] = ""
    default_queue_type: str | None = None
    tracing: bool | None = None
    protected_from_deletion: bool | None = None


class Protection(msgspec.Struct):
    """The protection of a vhost from deletion."""

    protected_from_deletion: bool


async def list_vhosts(request: Request) -> Response:
    node = node_of(request)
    vhosts = visible_vhosts(request)
    if flag_of(request, "disable_stats"):
        return await answer_list(request, vhosts, _name, partial(_brief, node))
    slices = slices_of(request)
    totals = {vhost.name: await totals_of(node, vhost, slices) for vhost in vhosts}
    describe = partial(_vhost_info, node, rates_of(request), totals)
    return await answer_list(request, vhosts, _name, describe)


def _name(vhost: Vhost) -> str:
    return vhost.name


async def get_vhost(request: Request) -> Response:
    node = node_of(request)
    vhost = node.broker.vhost(part_of(request, "vhost"))
    totals = {vhost.name: await totals_of(node, vhost, slices_of(request))}
    return json_response(_vhost_info(node, rates_of(request), totals, vhost))


async def put_vhost(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "vhost")
    body = await object_of(request)
    # RabbitMQ: 3.11 called it defaultqueuetype. Omitted description and tags become empty.
    kind = body.get("default_queue_type", body.get("defaultqueuetype"))
    definition = {"description": "", "tags": [], **body, "default_queue_type": kind}
    with node.turn():
        is_new = node.definitions.vhosts.put(name, definition)
        user = user_of(request).identity
        if is_new and node.directory.users.get(user) is not None:
            node.directory.permissions.put(name, user, _EVERYTHING, _EVERYTHING, _EVERYTHING)
    await node.synced()
    return change_response(is_new=is_new)


async def delete_vhost(request: Request) -> Response:
    node = node_of(request)
    name = part_of(request, "vhost")
    node.broker.vhost(name)
    if node.definitions.vhosts.is_protected(name):
        text = f"Refusing to delete virtual host '{name}' because it is protected from deletion"
        return json_response(ErrorBody("precondition_failed", text), status=412)
    with node.turn():
        node.close_connections(name)
        node.definitions.delete_vhost(name)
        node.directory.permissions.drop_vhost(name)
    await node.synced()
    return change_response()


async def get_protection(request: Request) -> Response:
    node = node_of(request)
    name = node.broker.vhost(part_of(request, "vhost")).name
    return json_response(Protection(node.definitions.vhosts.is_protected(name)))


async def protect(request: Request) -> Response:
    return await _set_protection(request, True)


async def unprotect(request: Request) -> Response:
    return await _set_protection(request, False)


async def _set_protection(request: Request, is_protected: bool) -> Response:
    node = node_of(request)
    name = node.broker.vhost(part_of(request, "vhost")).name
    with node.turn():
        node.definitions.vhosts.put(name, {"protected_from_deletion": is_protected})
    await node.synced()
    return change_response()


async def start_vhost(request: Request) -> Response:
    """RabbitMQ: it restarts a vhost that failed. Our vhosts run as long as their node."""
    node = node_of(request)
    node.broker.vhost(part_of(request, "vhost"))
    name = part_of(request, "node")
    if name != node.node_name:
        raise PreconditionFailedError(f"Unknown node: {name}")
    return change_response()


def _brief(node: NodeView, vhost: Vhost) -> VhostBrief:
    metadata = node.definitions.vhosts.metadata(vhost.name)
    tags = metadata.get("tags")
    shown = [str(tag) for tag in tags] if isinstance(tags, list) else []
    kind = vhost.default_kind or CLASSIC
    description = str(metadata.get("description", ""))
    return VhostBrief(
        name=vhost.name,
        description=description,
        tags=shown,
        default_queue_type=kind,
        metadata={"description": description, "tags": shown, "default_queue_type": kind},
        tracing=vhost.tracing,
        protected_from_deletion=node.definitions.vhosts.is_protected(vhost.name),
        cluster_state={node.node_name: "running"},
    )


def _vhost_info(
    node: NodeView, rates: RateSamples, totals: dict[str, VhostTotals], vhost: Vhost
) -> VhostInfo:
    found = totals[vhost.name]
    depths = queue_totals(node, rates, ("depth", vhost.name), [found])
    sums = vhost_bytes(node, rates, vhost, found)
    return VhostInfo(
        **msgspec.structs.asdict(_brief(node, vhost)),
        messages=depths.messages,
        messages_details=depths.messages_details,
        messages_ready=depths.messages_ready,
        messages_ready_details=depths.messages_ready_details,
        messages_unacknowledged=depths.messages_unacknowledged,
        messages_unacknowledged_details=depths.messages_unacknowledged_details,
        message_stats=vhost_stats(node, rates, vhost, found),
        recv_oct=sums.recv_oct,
        recv_oct_details=sums.recv_oct_details,
        send_oct=sums.send_oct,
        send_oct_details=sums.send_oct_details,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/vhosts",
        handler=list_vhosts,
        summary="List all vhosts that the user may see.",
        group="vhosts",
        query=(*LIST_QUERY, Query("disable_stats", "whether to omit all statistics", bool)),
        answer=list[VhostInfo],
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}",
        handler=get_vhost,
        summary="Return one vhost.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        answer=VhostInfo,
    ),
    Operation(
        method="PUT",
        path="/api/vhosts/{vhost}",
        handler=put_vhost,
        summary="Create or change a vhost.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        body=VhostBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/vhosts/{vhost}",
        handler=delete_vhost,
        summary="Delete a vhost with all its objects, and close its connections.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}/deletion/protection",
        handler=get_protection,
        summary="Return whether the vhost is protected from deletion.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        answer=Protection,
    ),
    Operation(
        method="POST",
        path="/api/vhosts/{vhost}/deletion/protection",
        handler=protect,
        summary="Protect the vhost from deletion.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/vhosts/{vhost}/deletion/protection",
        handler=unprotect,
        summary="Remove the protection of the vhost from deletion.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="POST",
        path="/api/vhosts/{vhost}/start/{node}",
        handler=start_vhost,
        summary="Start the vhost on a node: does nothing, because it runs already.",
        group="vhosts",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
)
