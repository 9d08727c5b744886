"""Runs the application by uvicorn inside the loop that is already running.

uvicorn is kept from owning what belongs to the node: signals, logging set-up, the lifespan
protocol, and its ten ticks a second, which an idle broker must not pay for. It serves until it is
told to stop, then lets running requests finish within a deadline.
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

_KEEP_ALIVE_S: Final = 65  # longer than the polling interval of any page or scraper
_CUT_OFF_S: Final = 1  # in which a request ends whose client was cut off
_BYE_S: Final = 1.0  # in which a client must answer the end of TLS; less than a stop may take


async def serve(
    node: NodeView,
    listeners: Sequence[Listener],
    stopping: asyncio.Event,
    stop_within_s: int,
) -> None:
    """Serves the application on bound sockets until `stopping`; closes them."""
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

    stop_within_s = 0  # given to running requests
    sockets_end = 0  # descriptors of sockets are below this; 0 = without a limit

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
        """Listen on each socket in its own way; uvicorn knows one way for all."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=each.socket,
                backlog=self.config.backlog,
                ssl=each.context,
                ssl_handshake_timeout=each.handshake_s,
                ssl_shutdown_timeout=_BYE_S if each.context is not None else None,
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
        """As uvicorn does it, but clients that do not get on are cut off before tasks are ended."""
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
    """Adds what every answer has."""
    common_headers = CommonHeaders()

    async def dated(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*common_headers.now(), *message.get("headers", ())]
            await send(message)

        # uvicorn ends only what was left at a stop, whose client is cut off by then.
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send_dated)

    return dated
