"""The table of all operations, and the Starlette application made from it.

`make_app` takes the node and touches nothing else. msgspec encodes the bodies; errors have the form
of `responses`. Paths are matched as they were sent, because `%2F` is the name of the default vhost
and not a slash: handlers decode the parts that they use.
"""

from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret import __version__, build_info
from leveret.errors import LeveretError
from leveret.http.framework import assets, manual, openapi
from leveret.http.framework.body_budget import BodyBudget
from leveret.http.framework.listing import with_list_query
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Endpoint, Operation, endpoints_of, routes_of
from leveret.http.framework.rates import RateSamples
from leveret.http.framework.request_shares import RequestShares, WaitingCalls
from leveret.http.framework.responses import (
    json_response,
    on_client_disconnect,
    on_http_error,
    on_leveret_error,
    on_unexpected_error,
)
from leveret.http.framework.router import PrefixRouter, normalized_path
from leveret.http.framework.sites import OwnNames
from leveret.http.insight import chronicles, explain, message_body, pause, tasks, trace, try_route
from leveret.http.insight import search as message_search
from leveret.http.jobs import admin as job_admin
from leveret.http.jobs import calls as job_calls
from leveret.http.jobs.access import first_part, with_problem_bodies
from leveret.http.management import (
    audit,
    backups,
    bindings,
    channels,
    cluster,
    connections,
    definitions,
    exchanges,
    features,
    federation,
    health,
    history,
    limits,
    messages,
    metrics,
    nodes,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    shovels,
    users,
    vhosts,
)
from leveret.http.streams import leases, stream_messages, streams
from leveret.listening import Networks
from leveret.slices import LoopShare

# Paths that are called so often that they bypass uvicorn and Starlette.
_FAST_PATHS: Final = ("/enqueue", "/dequeue", "/ack", "/nack", "/extend")


class Health(msgspec.Struct, omit_defaults=True):
    """Body of /api/health."""

    status: str  # "ok" or "failed"
    node: str
    durability: str  # "sync", or "os": a loss of power loses confirmed messages
    reason: str = ""  # why it failed; left out when ok
    jobs: str = ""  # "failed" if a server of the jobs service does not answer; left out when ok
    cluster: str = ""  # "ok", "degraded" or "stopped"; left out for a node in no cluster
    disk: str = ""  # that syncs of the log take long; left out when they are fast
    background: str = ""  # "failed" if work in the background fails; left out when ok
    clock: str = ""  # that the machine's time was set back before the start; left out when ok


class Version(msgspec.Struct):
    """Body of /api/version."""

    product: str
    version: str
    form: str  # "compiled" or "pure Python"
    python: str


class _App(Starlette):
    """Match the path as it was sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": normalized_path(scope["raw_path"].decode("latin-1"))}
        await super().__call__(scope, receive, send)


class _AppState(State):
    """The shared objects of the application, as plain attributes.

    Starlette keeps them in a dict behind `__getattr__`. A call of the fast path reads seven of
    them, which was 3 % of its CPU time.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def make_app(node: NodeView) -> Starlette:
    """Return the application of one node."""
    app = _App(
        exception_handlers={
            HTTPException: with_problem_bodies(_JOBS, on_http_error),
            LeveretError: on_leveret_error,
            ClientDisconnect: on_client_disconnect,
            Exception: with_problem_bodies(_JOBS, on_unexpected_error),
        },
    )
    app.router = PrefixRouter(routes_of(OPERATIONS))
    app.state = _AppState()
    app.state.node = node
    app.state.bodies = BodyBudget()
    app.state.rates = RateSamples()
    app.state.operations = OPERATIONS
    app.state.request_shares = RequestShares()
    app.state.waiting_calls = WaitingCalls(node.settings.http_connections_max)
    app.state.own_names = OwnNames(node.settings)
    app.state.proxies = Networks(node.settings.http_trusted_proxies)
    # Each turn of the engine has a time, so the time of the last one changes when clients act.
    app.state.loop_share = LoopShare(lambda: node.broker.turn.now_ms)
    app.state.history = history.History(node, app.state.loop_share)
    return app


def fast_path_endpoints() -> dict[bytes, Endpoint]:
    """Return the endpoints of the fast path: the same ones that Starlette calls."""
    found = endpoints_of(OPERATIONS)
    return {path.encode(): found[path] for path in _FAST_PATHS}


async def get_health(request: Request) -> Response:
    node: NodeView = request.app.state.node
    reason = "; ".join(node.alarms())
    jobs = "failed" if node.jobs.report().faults() else ""  # names of servers need a login
    status = "failed" if reason else "ok"
    body = Health(
        status=status,
        node=node.node_name,
        durability=node.durability,
        reason=reason,
        jobs=jobs,
        cluster=node.cluster.state() if node.cluster is not None else "",
        disk=health.slow_disk_text(node.slow_sync_s()),
        background="failed" if node.background_faults() else "",  # the texts need a login
        clock=node.clock_fault(),
    )
    return json_response(body, status=503 if reason else 200)


async def get_version(request: Request) -> Response:
    return json_response(Version("Leveret", __version__, build_info.form(), build_info.python()))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/health",
        handler=get_health,
        summary="Check whether the node is well; 503 with the reasons if it is not.",
        group="node",
        access=Access.PUBLIC,
        answer=Health,
        failures=((503, Health),),
    ),
    Operation(
        method="GET",
        path="/api/version",
        handler=get_version,
        summary="Return product, version and form of the node.",
        group="node",
        access=Access.PUBLIC,
        answer=Version,
    ),
    *metrics.OPERATIONS,
    *overview.OPERATIONS,
    *nodes.OPERATIONS,
    *connections.OPERATIONS,
    *channels.OPERATIONS,
    *chronicles.OPERATIONS,
    *exchanges.OPERATIONS,
    *queues.OPERATIONS,
    *message_search.OPERATIONS,
    *leases.OPERATIONS,
    *explain.OPERATIONS,
    *message_body.OPERATIONS,
    *pause.OPERATIONS,
    *try_route.OPERATIONS,
    *trace.OPERATIONS,
    *messages.OPERATIONS,
    *bindings.OPERATIONS,
    *health.OPERATIONS,
    *history.OPERATIONS,
    *features.OPERATIONS,
    *cluster.OPERATIONS,
    *backups.OPERATIONS,
    *streams.OPERATIONS,
    *tasks.OPERATIONS,
    *shovels.OPERATIONS,
    *federation.OPERATIONS,
    *job_calls.OPERATIONS,
    *job_admin.OPERATIONS,
    *stream_messages.OPERATIONS,
    *map(with_list_query, users.OPERATIONS),
    *map(with_list_query, permissions.OPERATIONS),
    *audit.OPERATIONS,
    *map(with_list_query, vhosts.OPERATIONS),
    *map(with_list_query, policies.OPERATIONS),
    *map(with_list_query, parameters.OPERATIONS),
    *map(with_list_query, limits.OPERATIONS),
    *definitions.OPERATIONS,
    *openapi.OPERATIONS,
    *assets.OPERATIONS,
    *manual.OPERATIONS,
)

# The first parts of the paths of the jobs API.
_JOBS: Final = frozenset(
    first_part(operation.path) for operation in OPERATIONS if operation.access is Access.JOB_TOKEN
)
