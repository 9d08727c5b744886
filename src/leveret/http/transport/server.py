"""Run the application with uvicorn inside the event loop of the node.

uvicorn must not take over tasks of the node: signals, logging, the lifespan protocol. Its timer of
ten ticks a second is off, because an idle broker must not use CPU. It serves until it is told to
stop, then lets running requests finish within a deadline.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leveret.errors import LeadLostError, StorageError
from leveret.http.app import fast_path_endpoints, make_app
from leveret.http.framework.node import NodeView
from leveret.http.framework.request_counts import with_request_counts
from leveret.http.framework.responses import ErrorBody, json_response
from leveret.http.transport.common_headers import CommonHeaders
from leveret.http.transport.fast_path import FastPath
from leveret.http.transport.http_connection import HEAD_S, HttpConnection
from leveret.http.transport.listener import Listener
from leveret.http.transport.open_connections import OpenConnections, open_connections
from leveret.listening import HTTP, HTTPS, Acceptor, Client, PortHints, Refusals, Relayed

log = logging.getLogger(__name__)

_KEEP_ALIVE_S: Final = 65  # longer than the polling interval of pages and scrapers
_CUT_OFF_S: Final = 1  # time for a request to end after its client was disconnected
_LAST_READ_S: Final = 0.02  # time to read requests that have arrived before a stop
_READS: Final = ("GET", "HEAD")  # methods that change nothing
_COMMANDS: Final = "/api/cluster/"  # they change the cluster, and no broker could lose that
_TLS_SHUTDOWN_S: Final = 1.0  # time for a client to end TLS; less than a stop may take


async def serve(
    node: NodeView,
    listeners: Sequence[Listener],
    stopping: asyncio.Event,
    stop_within_s: int,
    on_started: Callable[["HttpServer"], None],
) -> None:
    """Serve the application on bound sockets until `stopping` is set; then close them."""
    app = make_app(node)
    config = uvicorn.Config(
        with_common_headers(with_request_counts(with_gate(app, node), node.metrics.requests)),
        loop="none",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # a warning for each malformed request would let anybody fill the log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=stop_within_s + _CUT_OFF_S,
    )
    fast_path = FastPath(app, fast_path_endpoints(), node.metrics.requests)
    admission = open_connections(node.settings, node.machine().http_sockets_end())
    server = HttpServer(config, stopping, listeners, fast_path, admission, PortHints(node.settings))
    server.stop_within_s = stop_within_s
    server.on_started = on_started
    history = asyncio.get_running_loop().create_task(app.state.history.run(), name="history")
    history.add_done_callback(_log_failure)
    try:
        await server.serve(sockets=[each.socket for each in listeners])
    finally:
        history.cancel()
        await asyncio.wait([history])


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        text = "charts of the page get no new samples because of a bug: restart this node"
        log.error("%s, and report it", text, exc_info=fault)


class HttpServer(uvicorn.Server):
    """uvicorn's server without signal handlers and without ticks."""

    stop_within_s = 0  # time for running requests to finish
    on_started: Callable[["HttpServer"], None]  # called when clients are accepted

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: asyncio.Event,
        listeners: Sequence[Listener],
        fast_path: FastPath,
        admission: OpenConnections,
        hints: PortHints,
    ) -> None:
        super().__init__(config)
        self._fast_path = fast_path
        self.admission = admission
        self._hints = hints
        self._refusals = Refusals(log)
        self._stopping = stopping
        self._listeners = listeners

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on each socket, with or without TLS; uvicorn has one setting for all sockets."""
        self._acceptors = [
            Acceptor(
                [each.socket],
                self.make_protocol,
                self.admission,
                prepare_s=each.handshake_s if each.handshake_s is not None else HEAD_S,
                context=each.context,
                shutdown_s=_TLS_SHUTDOWN_S,
                service=HTTP if each.context is None else HTTPS,
                hints=self._hints,
            )
            for each in self._listeners
        ]
        self.servers = []
        self.started = True
        self.on_started(self)

    def buffered_bytes(self) -> int:
        """Return the memory of request bodies, and of answers that clients have not read."""
        total = self._fast_path.bodies.taken_bytes()
        for each in self.server_state.connections:
            if isinstance(each, HttpConnection):
                total += each.unread_bytes()
        return total

    def make_relayed(self, relayed: Relayed) -> asyncio.Protocol:
        """Return the protocol for a client of another node that was admitted."""
        protocol = self.make_protocol(relayed.client)
        protocol.relayed = relayed
        return protocol

    def make_protocol(self, client: Client) -> HttpConnection:
        """Return the protocol for the connection of a client that was admitted."""
        protocol = HttpConnection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.fast_path = self._fast_path
        protocol.open_connections = self.admission
        protocol.port_hints = self._hints
        protocol.note_refusal = self._refusals.note
        return protocol

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but disconnect slow clients before tasks are cancelled."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        await asyncio.sleep(_LAST_READ_S)
        loop = asyncio.get_running_loop()
        cut_off = loop.call_later(self.stop_within_s, self._cut_off)
        await super().shutdown(sockets)
        cut_off.cancel()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_CUT_OFF_S)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def with_gate(app: ASGIApp, node: NodeView) -> ASGIApp:
    """Return the application with answers that tell of nothing which could still be taken back.

    A command to the cluster waits before it is done, not before it is answered: it may itself let
    another node lead, and its operator must be told.
    """

    async def gated(scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = False
        if scope["path"].startswith(_COMMANDS) and scope["method"] not in _READS:
            if await _is_tellable(node):
                await app(scope, receive, send)
                return

        async def send_gated(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                try:
                    await node.tellable()
                except StorageError as fault:
                    is_refused = True
                    if isinstance(fault, LeadLostError) and scope["method"] not in _READS:
                        scope["state"]["abort"]()  # 503 would say that nothing was changed
                        return
                    body = ErrorBody("Service Unavailable", str(fault))
                    await json_response(body, status=503)(scope, receive, send)
            if not is_refused:
                await send(message)

        await app(scope, receive, send_gated)

    return gated


async def _is_tellable(node: NodeView) -> bool:
    try:
        await node.tellable()
    except StorageError:
        return False
    return True


def with_common_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with the common headers in every answer."""
    common_headers = CommonHeaders()

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*common_headers.now(), *message.get("headers", ())]
            await send(message)

        # uvicorn cancels only requests left at a stop, whose clients are disconnected by then.
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send_with_headers)

    return with_headers
