"""Metrics over HTTP, as RabbitMQ's Prometheus plugin has them, and the figures of the loop.

GET /metrics                                sums over all objects
GET /metrics/per-object                     lines for each object
GET /metrics/detailed?family=&vhost=&queue= some groups of families, for some objects
GET /api/loop                               how late the loop runs, how long syncs take

Scrapers of this machine need no login; the setting `metrics_login` says who does.
"""

from collections.abc import AsyncIterator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leveret.http.framework.node import LoopStats
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.request_parts import node_of, slices_of
from leveret.http.framework.responses import json_response

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FILTERS_MAX: Final = 100

AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"


async def get_metrics(request: Request) -> Response:
    return _answer(node_of(request).metrics.scrape(AGGREGATED, slices_of(request)))


async def get_per_object(request: Request) -> Response:
    return _answer(node_of(request).metrics.scrape(PER_OBJECT, slices_of(request)))


async def get_detailed(request: Request) -> Response:
    asked = request.query_params
    groups = frozenset(asked.getlist("family"))
    vhosts = frozenset(asked.getlist("vhost"))
    queues = tuple(asked.getlist("queue"))
    if len(groups) + len(vhosts) + len(queues) > FILTERS_MAX:
        raise HTTPException(400, f"at most {FILTERS_MAX} parameters")
    metrics = node_of(request).metrics
    return _answer(metrics.scrape_groups(groups, vhosts, queues, slices_of(request)))


async def get_loop(request: Request) -> Response:
    return json_response(node_of(request).metrics.loop())


def _answer(pieces: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(pieces, headers={"content-type": MEDIA_TYPE})


_DETAILED_QUERY: Final = (
    Query("family", "a group of families, as often as wanted"),
    Query("vhost", "a vhost, as often as wanted; without it, all"),
    Query("queue", "the name of a queue, with * and ?, as often as wanted"),
)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/metrics",
        handler=get_metrics,
        summary="Metrics for Prometheus, added up over all objects.",
        group="metrics",
        access=Access.METRICS,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/metrics/per-object",
        handler=get_per_object,
        summary="Metrics for Prometheus, object by object.",
        group="metrics",
        access=Access.METRICS,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/metrics/detailed",
        handler=get_detailed,
        summary="Some families of metrics, for some vhosts and queues.",
        group="metrics",
        access=Access.METRICS,
        query=_DETAILED_QUERY,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/api/loop",
        handler=get_loop,
        summary="How late the event loop runs, and how long syncs of the log take.",
        group="node",
        access=Access.MONITORING,
        answer=LoopStats,
    ),
)
