"""The node at a glance: overview, settings, and the requests of monitoring pages."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret import __version__, build_info
from leveret.config.option import Secret
from leveret.config.settings import options
from leveret.engine.exchanges.registry import KINDS
from leveret.engine.insight.totals import VhostTotals
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.vhosts.vhost import Vhost
from leveret.http.framework.listing import LIST_QUERY, with_columns
from leveret.http.framework.node import Listener, NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import sees_all, visible_vhosts
from leveret.http.framework.rates import RateSamples
from leveret.http.framework.request_parts import node_of, slices_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.management.stats import (
    ByteRates,
    ChurnRates,
    PublisherStats,
    QueueTotals,
    churn_counts,
    rates_of,
    total_counts,
    with_rates,
)
from leveret.slices import Slices

_AT_A_TIME: Final = 256  # queues and exchanges between two looks at the clock


class ListenerInfo(msgspec.Struct):
    """An address that the node listens on."""

    node: str
    protocol: str
    ip_address: str
    port: int
    interface: str
    socket_opts: dict[str, object] = {}


class Context(msgspec.Struct):
    """An address of this API."""

    description: str
    node: str
    ip: str
    port: str
    path: str


class TypeInfo(msgspec.Struct):
    """An exchange type, or an authentication mechanism."""

    name: str
    description: str
    enabled: bool = True


class ObjectTotals(msgspec.Struct):
    """Numbers of the objects of the node."""

    connections: int
    channels: int
    exchanges: int
    queues: int
    consumers: int


class Overview(msgspec.Struct, kw_only=True):
    """Body of /api/overview."""

    product_name: str
    product_version: str
    rabbitmq_version: str  # the version that Leveret behaves like
    management_version: str
    erlang_version: str  # the version of Python
    erlang_full_version: str
    cluster_name: str
    node: str
    rates_mode: str = "basic"
    disable_stats: bool = False
    enable_queue_totals: bool = False
    is_op_policy_updating_enabled: bool = True
    release_series_support_status: str = "supported"
    statistics_db_event_queue: int = 0
    sample_retention_policies: dict[str, list[int]]
    exchange_types: list[TypeInfo]
    listeners: list[ListenerInfo]
    contexts: list[Context]
    churn_rates: ChurnRates
    message_stats: PublisherStats
    queue_totals: QueueTotals
    object_totals: ObjectTotals
    cluster_tags: dict[str, str] = {}
    node_tags: dict[str, str] = {}


class Extension(msgspec.Struct):
    """A script of a plugin for the management page."""

    javascript: str


def exchange_types() -> list[TypeInfo]:
    return [TypeInfo(name, f"{name} exchange") for name in KINDS]


def listener_infos(node: NodeView) -> list[ListenerInfo]:
    return [
        ListenerInfo(node.node_name, one.protocol, one.host, one.port, _interface(one))
        for one in node.listeners()
    ]


def _interface(listener: Listener) -> str:
    return f"[{listener.host}]" if ":" in listener.host else listener.host


def _contexts(node: NodeView) -> list[Context]:
    return [
        Context("Leveret Management", node.node_name, one.host, str(one.port), "/")
        for one in node.listeners()
        if one.protocol.startswith("http")
    ]


async def totals_of(node: NodeView, vhost: Vhost, slices: Slices) -> VhostTotals:
    """Return the sums of a vhost, including its live connections. The pass is made in slices."""
    totals = VhostTotals(vhost)
    # At once: a session that ends meanwhile would be neither live nor among the retired counts.
    node.connections.add_counts(totals.counts, vhost.name)
    while totals.step(_AT_A_TIME):
        await slices.rest_if_over()
    return totals


def vhost_stats(
    node: NodeView, rates: RateSamples, vhost: Vhost, totals: VhostTotals
) -> PublisherStats:
    """Return the message counts of a vhost, with rates."""
    counts = total_counts(totals.counts)
    found = rates.of(("vhost", vhost.name), counts, node.now_ms())
    return with_rates(PublisherStats, counts, found)


def vhost_bytes(node: NodeView, rates: RateSamples, vhost: Vhost, totals: VhostTotals) -> ByteRates:
    """Return the bytes received from and sent to the clients of a vhost."""
    sums = (totals.counts.received_bytes, totals.counts.sent_bytes)
    return with_rates(ByteRates, sums, rates.of(("bytes", vhost.name), sums, node.now_ms()))


def queue_totals(
    node: NodeView, rates: RateSamples, key: tuple[str, ...], totals: list[VhostTotals]
) -> QueueTotals:
    """Return how many messages some vhosts have together."""
    counts = (
        sum(one.total for one in totals),
        sum(one.ready for one in totals),
        sum(one.unacked for one in totals),
    )
    return with_rates(QueueTotals, counts, rates.of(key, counts, node.now_ms(), gauges=3))


def _object_totals(
    request: Request, vhosts: list[Vhost], totals: list[VhostTotals]
) -> ObjectTotals:
    connections = node_of(request).connections
    outlets = connections.outlets()
    if not sees_all(user_of(request)):
        name = user_of(request).identity
        outlets = [outlet for outlet in outlets if connections.owner(outlet)[0] == name]
    return ObjectTotals(
        connections=len(outlets),
        channels=sum(len(connections.sessions(outlet)) for outlet in outlets),
        exchanges=sum(len(vhost.exchanges) for vhost in vhosts),
        queues=sum(len(vhost.queues) for vhost in vhosts),
        consumers=sum(one.consumers for one in totals),
    )


async def get_overview(request: Request) -> Response:
    """Return totals of everything, or of the vhosts that the user may see."""
    node, rates = node_of(request), rates_of(request)
    vhosts = visible_vhosts(request)
    slices = slices_of(request)
    totals: list[VhostTotals] = []
    counts = TrafficCounts()
    for vhost in vhosts:
        totals.append(await totals_of(node, vhost, slices))
        counts.add(totals[-1].counts)
        await slices.rest_if_over()
    key = "all" if sees_all(user_of(request)) else f"user {user_of(request).identity}"
    messages = total_counts(counts)
    churn = churn_counts(node.broker.turn.churn)
    now_ms = node.now_ms()
    python = build_info.python()
    overview = Overview(
        product_name="Leveret",
        product_version=__version__,
        rabbitmq_version=node.product_version,
        management_version=node.product_version,
        erlang_version=python,
        erlang_full_version=f"Python {python}, {build_info.form()}",
        cluster_name=node.definitions.cluster_name,
        node=node.node_name,
        sample_retention_policies={"global": [], "basic": [], "detailed": []},
        exchange_types=exchange_types(),
        listeners=listener_infos(node),
        contexts=_contexts(node),
        churn_rates=with_rates(ChurnRates, churn, rates.of("churn", churn, now_ms)),
        message_stats=with_rates(
            PublisherStats, messages, rates.of(("overview", key), messages, now_ms)
        ),
        queue_totals=queue_totals(node, rates, ("depths", key), totals),
        object_totals=_object_totals(request, vhosts, totals),
    )
    return json_response(with_columns(request, overview))


async def list_extensions(request: Request) -> Response:
    return json_response([])


async def get_config(request: Request) -> Response:
    """Return every option with its value; secrets are hidden."""
    settings = node_of(request).settings
    values = {name: getattr(settings, name) for name in options()}
    return json_response({name: _shown(value) for name, value in values.items()})


def _shown(value: object) -> object:
    if isinstance(value, Secret):
        return "***" if value else None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


async def reset(request: Request) -> Response:
    rates_of(request).clear()
    return Response(status_code=204)


_GROUP: Final = "node"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/overview",
        handler=get_overview,
        summary="Return totals and rates of the objects that the user may see.",
        group=_GROUP,
        query=LIST_QUERY[:1],
        answer=Overview,
    ),
    Operation(
        method="GET",
        path="/api/extensions",
        handler=list_extensions,
        summary="List the scripts of plugins for the management page: always empty.",
        group=_GROUP,
        answer=list[Extension],
    ),
    Operation(
        method="GET",
        path="/api/config/effective",
        handler=get_config,
        summary="Return every option of the node with its value; secrets are hidden.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        answer=dict[str, object],
    ),
    Operation(
        method="DELETE",
        path="/api/reset",
        handler=reset,
        summary="Forget the samples from which rates are computed.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
    Operation(
        method="DELETE",
        path="/api/reset/{node}",
        handler=reset,
        summary="Forget the samples from which rates are computed.",
        group=_GROUP,
        access=Access.ADMINISTRATOR,
        status=204,
    ),
)
