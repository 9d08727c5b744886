"""Connections of AMQP clients: list, show and close them.

Users without the tag monitoring see and close only their own connections. Closing connections of
other users needs the tag administrator.
"""

from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.engine.turns.session import Outlet
from leveret.http.framework.listing import LIST_QUERY, RowReads, answer_list, with_columns
from leveret.http.framework.names import printable
from leveret.http.framework.node import Connections, ConnectionSnapshot, NodeView
from leveret.http.framework.operations import Operation
from leveret.http.framework.permissions import seen_vhost, sees_all
from leveret.http.framework.rates import Rate, RateSamples
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.management.stats import rates_of

DEFAULT_REASON: Final = "Closed via management plugin"
REASON_BYTES_MAX: Final = 200


class ConnectionInfo(msgspec.Struct, kw_only=True):
    """One connection."""

    name: str
    node: str
    state: str  # starting, tuning, opening, running, blocked, closing
    user: str
    user_who_performed_action: str
    vhost: str
    protocol: str
    type: str
    auth_mechanism: str
    peer_host: str
    peer_port: int
    host: str
    port: int
    channels: int
    channel_max: int
    frame_max: int
    timeout: int  # heartbeat interval in seconds
    connected_at: int  # ms since 1970
    last_heartbeat: int | None  # ms since 1970; null: none yet
    client_properties: dict[str, object]
    recv_oct: int
    recv_oct_details: Rate
    recv_cnt: int
    send_oct: int
    send_oct_details: Rate
    send_cnt: int
    send_pend: int
    ssl: bool
    ssl_protocol: str | None
    ssl_cipher: str | None
    ssl_hash: str | None
    ssl_key_exchange: str | None
    peer_cert_subject: str | None
    peer_cert_issuer: str | None
    peer_cert_validity: str | None
    user_provided_name: str | UnsetType = UNSET


class UserConnection(msgspec.Struct):
    """A connection in the list of a user."""

    name: str
    node: str
    user: str
    vhost: str


def connection_info(
    node: NodeView, rates: RateSamples, now_ms: int, outlet: Outlet
) -> ConnectionInfo | None:
    """Return a connection in the form of the API, or None if it is closed."""
    found = node.connections.snapshot(outlet)
    if found is None:
        return None
    received, sent = rates.of(
        ("connection", found.name), (found.received_bytes, found.sent_bytes), now_ms
    )
    tls = found.tls
    return ConnectionInfo(
        name=found.name,
        node=node.node_name,
        state=found.state,
        user=printable(found.user),
        user_who_performed_action=printable(found.user),
        vhost=printable(found.vhost),
        protocol="AMQP 0-9-1",
        type="network",
        auth_mechanism=printable(found.mechanism),
        peer_host=found.peer_host,
        peer_port=found.peer_port,
        host=found.host,
        port=found.port,
        channels=found.channels,
        channel_max=found.channel_max,
        frame_max=found.frame_max,
        timeout=found.heartbeat_s,
        connected_at=found.connected_ms,
        last_heartbeat=found.heartbeat_ms or None,
        client_properties=dict(found.client_properties),
        recv_oct=found.received_bytes,
        recv_oct_details=received,
        recv_cnt=found.received_count,
        send_oct=found.sent_bytes,
        send_oct_details=sent,
        send_cnt=found.sent_count,
        send_pend=found.pending_bytes,
        ssl=bool(tls),
        ssl_protocol=tls.get("protocol"),
        ssl_cipher=tls.get("cipher"),
        ssl_hash=tls.get("hash"),
        ssl_key_exchange=tls.get("key_exchange"),
        peer_cert_subject=tls.get("peer_cert_subject"),
        peer_cert_issuer=tls.get("peer_cert_issuer"),
        peer_cert_validity=tls.get("peer_cert_validity"),
        user_provided_name=node.connections.client_name(outlet) or UNSET,
    )


def visible_connections(request: Request) -> list[Outlet]:
    """Return the connections that the user may see, in the vhost of the path if it has one."""
    connections = node_of(request).connections
    user = user_of(request)
    wanted = seen_vhost(request).name if "vhost" in request.path_params else None
    everything = sees_all(user)
    if everything and wanted is None:
        return list(connections.outlets())
    found: list[Outlet] = []
    for outlet in connections.outlets():
        owner, vhost = connections.owner(outlet)
        if (everything or owner == user.identity) and wanted in (None, vhost):
            found.append(outlet)
    return found


def connection_of(request: Request) -> Outlet:
    """Return the connection of the path. Answer 401 if the user may not see it."""
    connections = node_of(request).connections
    name = part_of(request, "name")
    user = user_of(request)
    for outlet in connections.outlets():
        if outlet.name == name:
            if connections.snapshot(outlet) is None:
                break
            if not sees_all(user) and connections.owner(outlet)[0] != user.identity:
                raise HTTPException(401, "User not authorised to access object")
            return outlet
    raise HTTPException(404, "Not Found")


async def list_connections(request: Request) -> Response:
    node = node_of(request)
    describe = partial(connection_info, node, rates_of(request), node.now_ms())
    reads = _reads(node.connections)
    return await answer_list(request, visible_connections(request), _name, describe, reads)


def _name(outlet: Outlet) -> str:
    return outlet.name


def _reads(connections: Connections) -> RowReads[Outlet]:
    """Return the reads of a list that people search by what they know: client's name and user."""
    return RowReads(
        texts=lambda outlet: (connections.client_name(outlet), connections.owner(outlet)[0]),
        sort_keys={
            "name": _name,
            "user_provided_name": lambda outlet: connections.client_name(outlet) or outlet.name,
            "channels": lambda outlet: len(connections.sessions(outlet)),
        },
    )


async def get_connection(request: Request) -> Response:
    node = node_of(request)
    found = connection_info(node, rates_of(request), node.now_ms(), connection_of(request))
    return json_response(with_columns(request, found))


async def close_connection(request: Request) -> Response:
    outlet = connection_of(request)
    connections = node_of(request).connections
    _require_close(request, outlet)
    connections.close(outlet, _reason(request))
    return Response(status_code=204)


def _require_close(request: Request, outlet: Outlet) -> None:
    user = user_of(request)
    owner = node_of(request).connections.owner(outlet)[0]
    if owner != user.identity and "administrator" not in user.tags:
        raise HTTPException(401, "Not administrator user")


def _reason(request: Request) -> str:
    """Return the reason for the client. The close method of AMQP carries only a short text."""
    text = request.headers.get("x-reason", "") or DEFAULT_REASON
    reason = text.encode("latin-1", "replace").decode("utf-8", "replace")
    return reason.encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")


def _connections_of(request: Request) -> list[tuple[Outlet, ConnectionSnapshot]]:
    """Return the connections of the user in the path. Users of tokens are shown by their names."""
    user = user_of(request)
    wanted = part_of(request, "user")
    everything = sees_all(user)
    if wanted != user.name and not everything:
        raise HTTPException(401, "User not authorised to access object")
    connections = node_of(request).connections
    return [
        (outlet, connected)
        for outlet in connections.outlets()
        if (everything or connections.owner(outlet)[0] == user.identity)
        and (connected := connections.snapshot(outlet)) is not None
        and connected.user == wanted
    ]


async def list_user_connections(request: Request) -> Response:
    node_name = node_of(request).node_name
    return json_response(
        [
            UserConnection(c.name, node_name, printable(c.user), printable(c.vhost))
            for _, c in _connections_of(request)
        ]
    )


async def close_user_connections(request: Request) -> Response:
    connections = node_of(request).connections
    for outlet, _ in _connections_of(request):
        _require_close(request, outlet)
        connections.close(outlet, _reason(request))
    return Response(status_code=204)


async def list_sessions(request: Request) -> Response:
    """Return an empty list: sessions belong to AMQP 1.0."""
    connection_of(request)
    return json_response([])


_GROUP: Final = "connections"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/connections",
        handler=list_connections,
        summary="List all connections that the user may see.",
        group=_GROUP,
        query=LIST_QUERY,
        answer=list[ConnectionInfo],
    ),
    Operation(
        method="GET",
        path="/api/vhosts/{vhost}/connections",
        handler=list_connections,
        summary="List the connections of a vhost.",
        group=_GROUP,
        query=LIST_QUERY,
        answer=list[ConnectionInfo],
    ),
    Operation(
        method="GET",
        path="/api/connections/username/{user}",
        handler=list_user_connections,
        summary="List the connections of a user.",
        group=_GROUP,
        answer=list[UserConnection],
    ),
    Operation(
        method="DELETE",
        path="/api/connections/username/{user}",
        handler=close_user_connections,
        summary="Close all connections of a user, with the reason in the header X-Reason.",
        group=_GROUP,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/connections/{name}",
        handler=get_connection,
        summary="Return one connection.",
        group=_GROUP,
        query=LIST_QUERY[:1],
        answer=ConnectionInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/connections/{name}",
        handler=close_connection,
        summary="Close a connection with code 320 and the reason in the header X-Reason.",
        group=_GROUP,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/connections/{name}/sessions",
        handler=list_sessions,
        summary="List the AMQP 1.0 sessions of a connection: always empty.",
        group=_GROUP,
        answer=list[dict[str, str]],
    ),
)
