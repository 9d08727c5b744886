"""The state of the cluster as this node sees it, and the commands that change the cluster."""

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.operations import Access, Operation, body_of
from leveret.http.framework.request_parts import node_of
from leveret.http.framework.responses import json_response


class ClusterCommand(msgspec.Struct):
    """The node that a command concerns."""

    node: str


class ClusterAnswer(msgspec.Struct):
    """A sentence that says what the command has done."""

    message: str


async def get_cluster(request: Request) -> Response:
    """Return the cluster. A single node is its only member."""
    node = node_of(request)
    cluster = node.cluster
    if cluster is None:
        return json_response({"name": node.node_name, "cluster": "", "members": []})
    return json_response(cluster.facts())


async def _command(request: Request, name: str) -> Response:
    cluster = node_of(request).cluster
    if cluster is None:
        raise HTTPException(400, "this node is not in a cluster")
    body = await body_of(request, ClusterCommand)
    return json_response(ClusterAnswer(await cluster.command(name, body.node)))


def _operation(name: str, summary: str) -> Operation:
    """Return the operation that gives the cluster a command about one node."""

    async def handler(request: Request) -> Response:
        return await _command(request, name)

    return Operation(
        method="POST",
        path=f"/api/cluster/{name}",
        handler=handler,
        summary=summary,
        group="node",
        access=Access.ADMINISTRATOR,
        body=ClusterCommand,
        answer=ClusterAnswer,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/cluster",
        handler=get_cluster,
        summary="The members of the cluster, who leads, and how far the others are behind.",
        group="node",
        access=Access.MONITORING,
        answer=dict[str, Any],
    ),
    Operation(
        method="GET",
        path="/api/cluster/leader",  # nodes that follow relay it, unlike /api/cluster
        handler=get_cluster,
        summary="The cluster as its leader sees it, also if another node is asked.",
        group="node",
        access=Access.MONITORING,
        answer=dict[str, Any],
    ),
    _operation("lead", "Let a node of the cluster lead."),
    _operation("remove", "Remove a node from the cluster, unless that would cost the majority."),
    _operation("drain", "Let a node lead only if no other one can, for maintenance."),
    _operation("revive", "Let a drained node of the cluster lead again."),
)
