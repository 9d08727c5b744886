"""Short answers for requests that make sense only in a cluster of RabbitMQ.

Feature flags (all are enabled), deprecated features, replicas of quorum queues (every node of the
cluster has one), rebalancing, and the login of RabbitMQ's page.
"""

from typing import Final
from urllib.parse import parse_qs

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.errors import PreconditionFailedError
from leveret.http.framework.cluster_nodes import cluster_nodes, names_of
from leveret.http.framework.listing import LIST_QUERY, answer_list
from leveret.http.framework.login import login_as
from leveret.http.framework.node import ClusterNodeFacts
from leveret.http.framework.operations import Access, Operation, body_of, whole_body
from leveret.http.framework.permissions import queue_in, seen_vhost, used_vhost
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response

LOGIN_BYTES_MAX: Final = 4096


class FeatureFlag(msgspec.Struct):
    """One feature flag."""

    name: str
    desc: str
    state: str = "enabled"
    stability: str = "required"
    provided_by: str = "leveret"
    doc_url: str = ""
    callbacks: list[str] = []
    require_level: str = "hard"
    experiment_level: str = "unsupported"


class DeprecatedFeature(msgspec.Struct):
    """A deprecated feature of RabbitMQ."""

    name: str
    deprecation_phase: str
    state: str
    desc: str
    doc_url: str = ""
    provided_by: str = "leveret"


class ReplicaInfo(msgspec.Struct):
    """A replica of a quorum queue."""

    node: str = msgspec.field(name="Node Name")
    state: str = msgspec.field(name="Raft State")
    membership: str = msgspec.field(name="Membership")
    last_index: int = msgspec.field(name="Last Log Index")
    last_written: int = msgspec.field(name="Last Written")
    last_applied: int = msgspec.field(name="Last Applied")
    commit_index: int = msgspec.field(name="Commit Index")
    snapshot_index: int = msgspec.field(name="Snapshot Index")
    term: int = msgspec.field(name="Term")
    machine_version: int = msgspec.field(name="Machine Version")


class ReplicaBody(msgspec.Struct):
    """Body of a request to add or remove a replica."""

    node: str


class GrowBody(msgspec.Struct):
    """Body of a request to add replicas of many queues."""

    vhost_pattern: str = ".*"
    queue_pattern: str = ".*"
    strategy: str = "all"


# RabbitMQ: flags that client libraries and scripts of operators look for.
_FLAGS: Final = (
    FeatureFlag("quorum_queue", "Quorum queues"),
    FeatureFlag("stream_queue", "Streams"),
    FeatureFlag("implicit_default_bindings", "Default bindings are not stored"),
    FeatureFlag("virtual_host_metadata", "Descriptions and tags of vhosts"),
    FeatureFlag("maintenance_mode_status", "Maintenance mode"),
    FeatureFlag("user_limits", "Limits of connections and channels for users"),
    FeatureFlag("drop_unroutable_metric", "Count of unroutable messages that are dropped"),
    FeatureFlag("empty_basic_get_metric", "Count of gets that find nothing"),
    FeatureFlag("stream_single_active_consumer", "Single active consumers of streams"),
    FeatureFlag("direct_exchange_routing_v2", "Fast routing of direct exchanges"),
    FeatureFlag("listener_records_in_ets", "Listeners outside the metadata store"),
    FeatureFlag("tracking_records_in_ets", "Connection tracking outside the metadata store"),
    FeatureFlag("classic_queue_type_delivery_support", "Bulk deliveries of classic queues"),
    FeatureFlag("message_containers", "Messages of every protocol in one form"),
    FeatureFlag("rabbitmq_4.0.0", "Behaviour of 4.0"),
    FeatureFlag("rabbitmq_4.1.0", "Behaviour of 4.1"),
    FeatureFlag("rabbitmq_4.2.0", "Behaviour of 4.2"),
)
_DEPRECATED: Final = (
    DeprecatedFeature(
        "transient_nonexcl_queues",
        "permitted_by_default",
        "permitted",
        "Queues that are neither durable nor exclusive",
    ),
    DeprecatedFeature(
        "global_qos", "permitted_by_default", "permitted", "A prefetch that consumers share"
    ),
)


async def list_flags(request: Request) -> Response:
    return await answer_list(request, _FLAGS, _flag_name, _flag)


def _flag_name(flag: FeatureFlag) -> str:
    return flag.name


def _flag(flag: FeatureFlag) -> FeatureFlag:
    return flag


async def enable_flag(request: Request) -> Response:
    name = part_of(request, "name")
    if name not in (flag.name for flag in _FLAGS):
        raise HTTPException(404, "Not Found")
    return Response(status_code=204)


async def list_deprecated(request: Request) -> Response:
    return json_response(_DEPRECATED)


async def list_deprecated_used(request: Request) -> Response:
    """Return the deprecated features that are used here."""
    vhosts = node_of(request).broker.vhosts.values()
    is_used = any(
        not queue.durable and queue.owner is None for v in vhosts for queue in v.queues.values()
    )
    return json_response(_DEPRECATED[:1] if is_used else [])


async def get_quorum_status(request: Request) -> Response:
    queue = queue_in(seen_vhost(request), part_of(request, "name"))
    if not queue.is_quorum:
        raise HTTPException(400, "not a quorum queue")
    node = node_of(request)
    cluster = node.cluster
    term, commit = cluster.raft_indexes() if cluster is not None else (1, queue.next_seq)
    return json_response(
        [
            _replica(one, term, commit, one.last_index if cluster is not None else commit)
            for one in cluster_nodes(node)
        ]
    )


def _replica(one: ClusterNodeFacts, term: int, commit: int, last: int) -> ReplicaInfo:
    """Return the copy of a queue on a node. All queues share the log of the cluster."""
    state = "leader" if one.is_leader else "follower"
    return ReplicaInfo(
        node=one.name,
        state=state if one.is_running else "noproc",
        membership="voter" if one.is_voter else "promotable",
        last_index=last,
        last_written=last,
        last_applied=min(last, commit),
        commit_index=min(last, commit),
        snapshot_index=0,
        term=term,
        machine_version=1,
    )


async def change_replicas(request: Request) -> Response:
    """Refuse: every node of the cluster has one replica of every queue, and keeps it."""
    queue = queue_in(used_vhost(request), part_of(request, "name"))
    body = await body_of(request, ReplicaBody)
    if not queue.is_quorum:
        raise HTTPException(400, "not a quorum queue")
    nodes = cluster_nodes(node_of(request))
    if body.node not in names_of(nodes):
        raise PreconditionFailedError("node_not_running")
    if request.method == "POST":
        raise PreconditionFailedError("already_a_member")
    if len(nodes) == 1:
        raise PreconditionFailedError("last_member")
    raise PreconditionFailedError("every node of the cluster holds a copy of every durable queue")


async def change_all_replicas(request: Request) -> Response:
    """Do nothing: every node has its copies already, and keeps them."""
    if part_of(request, "node") not in names_of(cluster_nodes(node_of(request))):
        raise HTTPException(404, "Not Found")
    await body_of(request, GrowBody)
    return Response(status_code=204)


async def rebalance(request: Request) -> Response:
    """Do nothing: one node leads all queues."""
    return Response(status_code=204)


async def log_in(request: Request) -> Response:
    """Check the credentials of a form. RabbitMQ: it keeps them in a cookie; we keep nothing."""
    data = await whole_body(request, LOGIN_BYTES_MAX)
    form = parse_qs(data.decode("utf-8", "replace"), keep_blank_values=True)
    name, password = (form.get(key, [""])[0] for key in ("username", "password"))
    await login_as(request, name, password)
    return json_response("ok")


async def log_out(request: Request) -> Response:
    return json_response("ok")


_QUORUM: Final = "/api/queues/quorum"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/feature-flags",
        handler=list_flags,
        summary="List the feature flags; all are enabled.",
        group="features",
        query=LIST_QUERY,
        answer=list[FeatureFlag],
    ),
    Operation(
        method="PUT",
        path="/api/feature-flags/{name}/enable",
        handler=enable_flag,
        summary="Enable a feature flag; all are enabled already.",
        group="features",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/deprecated-features",
        handler=list_deprecated,
        summary="List the deprecated features of RabbitMQ.",
        group="features",
        answer=list[DeprecatedFeature],
    ),
    Operation(
        method="GET",
        path="/api/deprecated-features/used",
        handler=list_deprecated_used,
        summary="List the deprecated features that are used here.",
        group="features",
        answer=list[DeprecatedFeature],
    ),
    Operation(
        method="GET",
        path=f"{_QUORUM}/{{vhost}}/{{name}}/status",
        handler=get_quorum_status,
        summary="List the replicas of a quorum queue.",
        group="quorum queues",
        answer=list[ReplicaInfo],
    ),
    Operation(
        method="POST",
        path=f"{_QUORUM}/{{vhost}}/{{name}}/replicas/add",
        handler=change_replicas,
        summary="Add a replica: refused, because there is one node.",
        group="quorum queues",
        access=Access.ADMINISTRATOR,
        body=ReplicaBody,
        status=204,
    ),
    Operation(
        method="DELETE",
        path=f"{_QUORUM}/{{vhost}}/{{name}}/replicas/delete",
        handler=change_replicas,
        summary="Remove a replica: refused, because it is the last one.",
        group="quorum queues",
        access=Access.ADMINISTRATOR,
        body=ReplicaBody,
        status=204,
    ),
    Operation(
        method="POST",
        path=f"{_QUORUM}/replicas/on/{{node}}/grow",
        handler=change_all_replicas,
        summary="Add replicas on a node: does nothing, because it is the only node.",
        group="quorum queues",
        access=Access.ADMINISTRATOR,
        body=GrowBody,
        status=204,
    ),
    Operation(
        method="DELETE",
        path=f"{_QUORUM}/replicas/on/{{node}}/shrink",
        handler=change_all_replicas,
        summary="Remove replicas from a node: does nothing, because it is the only node.",
        group="quorum queues",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="POST",
        path="/api/rebalance/queues",
        handler=rebalance,
        summary="Spread the leaders of queues over the nodes: does nothing on one node.",
        group="quorum queues",
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="POST",
        path="/api/login",
        handler=log_in,
        summary="Check the credentials of a form.",
        group="login",
        access=Access.PUBLIC,
        answer=str,
    ),
    Operation(
        method="DELETE",
        path="/api/login",
        handler=log_out,
        summary="Log out: does nothing, because no login is kept.",
        group="login",
        access=Access.PUBLIC,
        answer=str,
    ),
)
