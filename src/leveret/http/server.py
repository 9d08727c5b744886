"""Runs the application by uvicorn inside the loop that is already running.

uvicorn is kept from owning what belongs to the node: signals, logging set-up, the lifespan
protocol, and its ten ticks a second, which an idle broker must not pay for. It serves until it is
told to stop, then lets running requests finish within a deadline.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from leveret.http.app import make_app
from leveret.http.facts import BrokerFacts
from leveret.http.listener import Listener
from leveret.http.requests import counted

_KEEP_ALIVE_S: Final = 65  # longer than the polling interval of any page or scraper
_CONNECTIONS_MAX: Final = 4096
HEAD_BYTES_MAX: Final = 65_536  # of a request: its path and its headers
_BYE_S: Final = 1.0  # in which a client must answer the end of TLS; less than a stop may take


async def serve(
    facts: BrokerFacts,
    listeners: Sequence[Listener],
    stopping: asyncio.Event,
    stop_within_s: int,
) -> None:
    """Serves the application on bound sockets until `stopping`; closes them."""
    config = uvicorn.Config(
        with_date(counted(make_app(facts), facts.metrics.requests)),
        loop="none",
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=stop_within_s,
    )
    await _Server(config, stopping, listeners).serve(sockets=[each.socket for each in listeners])


class _Protocol(HttpToolsProtocol):
    """Bounds the head of a request, and lets an answer that cannot be finished be broken off.

    The latter is `abort` in the scope's state.
    """

    _head_bytes = 0  # received since anything became whole: all of them are of a head
    _has_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._has_head and self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")

    def on_headers_complete(self) -> None:
        self._has_head = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._has_head = False
        self._head_bytes = 0
        super().on_message_complete()


class _Server(uvicorn.Server):
    """uvicorn's server without signal handlers and without ticks."""

    def __init__(
        self, config: uvicorn.Config, stopping: asyncio.Event, listeners: Sequence[Listener]
    ) -> None:
        super().__init__(config)
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
        return _Protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def main_loop(self) -> None:
        await self._stopping.wait()


class _Stamps:
    """The headers that every answer has, made anew each second."""

    def __init__(self) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []

    def now(self) -> list[tuple[bytes, bytes]]:
        second = int(time.time())  # noqa: TID251
        if second != self._second:
            self._second = second
            date = formatdate(second, usegmt=True).encode()
            self._headers = [(b"date", date), (b"server", b"Leveret")]
        return self._headers


def with_date(app: ASGIApp) -> ASGIApp:
    """Adds the headers that uvicorn's ticks would keep: Date and Server."""

    stamps = _Stamps()

    async def dated(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*stamps.now(), *message.get("headers", ())]
            await send(message)

        await app(scope, receive, send_dated)

    return dated
