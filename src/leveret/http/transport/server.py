"""Run the application with uvicorn inside the event loop of the node.

uvicorn must not take over tasks of the node: signals, logging, the lifespan protocol. Its timer of
ten ticks a second is off, because an idle broker must not use CPU. It serves until it is told to
stop, then lets running requests finish within a deadline.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leveret.http.app import fast_path_endpoints, make_app
from leveret.http.framework.node import NodeView
from leveret.http.framework.request_counts import with_request_counts
from leveret.http.transport.common_headers import CommonHeaders
from leveret.http.transport.fast_path import FastPath
from leveret.http.transport.http_connection import CONNECTIONS_MAX, HttpConnection
from leveret.http.transport.listener import Listener

_KEEP_ALIVE_S: Final = 65  # longer than the polling interval of pages and scrapers
_CUT_OFF_S: Final = 1  # time for a request to end after its client was disconnected
_TLS_SHUTDOWN_S: Final = 1.0  # time for a client to end TLS; less than a stop may take


async def serve(
    node: NodeView,
    listeners: Sequence[Listener],
    stopping: asyncio.Event,
    stop_within_s: int,
) -> None:
    """Serve the application on bound sockets until `stopping` is set; then close them."""
    app = make_app(node)
    config = uvicorn.Config(
        with_common_headers(with_request_counts(app, node.metrics.requests)),
        loop="none",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=stop_within_s + _CUT_OFF_S,
    )
    fast_path = FastPath(app, fast_path_endpoints(), node.metrics.requests)
    server = _Server(config, stopping, listeners, fast_path)
    server.stop_within_s = stop_within_s
    server.sockets_end = node.machine().http_sockets_end()
    await server.serve(sockets=[each.socket for each in listeners])


class _Server(uvicorn.Server):
    """uvicorn's server without signal handlers and without ticks."""

    stop_within_s = 0  # time for running requests to finish
    sockets_end = 0  # first file descriptor that is refused; 0: no limit

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: asyncio.Event,
        listeners: Sequence[Listener],
        fast_path: FastPath,
    ) -> None:
        super().__init__(config)
        self._fast_path = fast_path
        self._stopping = stopping
        self._listeners = listeners

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on each socket, with or without TLS; uvicorn has one setting for all sockets."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=each.socket,
                backlog=self.config.backlog,
                ssl=each.context,
                ssl_handshake_timeout=each.handshake_s,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S if each.context is not None else None,
            )
            for each in self._listeners
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        protocol = HttpConnection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.fast_path = self._fast_path
        protocol.sockets_end = self.sockets_end
        return protocol

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but disconnect slow clients before tasks are cancelled."""
        loop = asyncio.get_running_loop()
        cut_off = loop.call_later(self.stop_within_s, self._cut_off)
        await super().shutdown(sockets)
        cut_off.cancel()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_CUT_OFF_S)

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


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
