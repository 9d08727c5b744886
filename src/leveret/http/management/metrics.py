"""Metrics over HTTP, as RabbitMQ's Prometheus plugin has them, and delays of the event loop.

GET /metrics                                sums over all objects
GET /metrics/per-object                     lines for each object
GET /metrics/detailed?family=&vhost=&queue= some groups of families, for some objects
GET /api/loop                               delays of the event loop and of the log

Scrapers on the same machine need no login. The setting `metrics_login` changes that.
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
    query = request.query_params
    groups = frozenset(query.getlist("family"))
    vhosts = frozenset(query.getlist("vhost"))
    queues = tuple(query.getlist("queue"))
    if len(groups) + len(vhosts) + len(queues) > FILTERS_MAX:
        raise HTTPException(400, f"at most {FILTERS_MAX} parameters")
    metrics = node_of(request).metrics
    return _answer(metrics.scrape_groups(groups, vhosts, queues, slices_of(request)))


async def get_loop(request: Request) -> Response:
    return json_response(node_of(request).metrics.loop())


def _answer(pieces: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(pieces, headers={"content-type": MEDIA_TYPE})


_DETAILED_QUERY: Final = (
    Query("family", "a group of families; may be repeated"),
    Query("vhost", "a vhost; may be repeated; default: all"),
    Query("queue", "the name of a queue, with * and ?; may be repeated"),
)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/metrics",
        handler=get_metrics,
        summary="Return metrics for Prometheus, as sums over all objects.",
        group="metrics",
        access=Access.METRICS,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/metrics/per-object",
        handler=get_per_object,
        summary="Return metrics for Prometheus, for each object.",
        group="metrics",
        access=Access.METRICS,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/metrics/detailed",
        handler=get_detailed,
        summary="Return some families of metrics, for some vhosts and queues.",
        group="metrics",
        access=Access.METRICS,
        query=_DETAILED_QUERY,
        media=MEDIA_TYPE,
    ),
    Operation(
        method="GET",
        path="/api/loop",
        handler=get_loop,
        summary="Return the delays of the event loop and the times of log syncs.",
        group="node",
        access=Access.MONITORING,
        answer=LoopStats,
    ),
)
