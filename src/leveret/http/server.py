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
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from leveret.http.app import express_endpoints, make_app
from leveret.http.express import Express, Head, maybe_head
from leveret.http.facts import BrokerFacts
from leveret.http.listener import Listener
from leveret.http.requests import counted

_KEEP_ALIVE_S: Final = 65  # longer than the polling interval of any page or scraper
_CONNECTIONS_MAX: Final = 4096
_WAITING_BYTES_MAX: Final = 64 * 1024  # that a client sends ahead of an answer
_BYE_S: Final = 1.0  # in which a client must answer the end of TLS; less than a stop may take


async def serve(
    facts: BrokerFacts,
    listeners: Sequence[Listener],
    stopping: asyncio.Event,
    stop_within_s: int,
) -> None:
    """Serves the application on bound sockets until `stopping`; closes them."""
    app = make_app(facts)
    config = uvicorn.Config(
        with_date(counted(app, facts.metrics.requests)),
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
    express = Express(app, express_endpoints(), facts.metrics.requests)
    server = _Server(config, stopping, listeners, express)
    await server.serve(sockets=[each.socket for each in listeners])


class _Protocol(H11Protocol):
    """Lets an answer that cannot be finished drop its connection: `abort` in the scope's state.

    Small calls that come by the thousand take the express lane, past h11 (`express.py`).
    """

    express: Express  # given by the server

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._head: Head | None = None  # of the request in the lane
        self._body = bytearray()  # of it, so far; then what came after it
        self._gone: asyncio.Event | None = None  # while a request of the lane is answered
        self._is_ending = False

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._take_body(data)
            return
        head = maybe_head(data, self.express.endpoints) if self._is_between() else None
        if head is None or len(self.tasks) >= _CONNECTIONS_MAX:
            super().data_received(data)
            return
        self._unset_keepalive_if_required()
        self._head = head
        self._take_body(data[head.body_start :])

    def _is_between(self) -> bool:
        """Whether h11 has nothing of a request in its hands."""
        cycle: RequestResponseCycle | None = self.cycle
        return (
            (cycle is None or cycle.response_complete)
            and self.conn.their_state is h11.IDLE
            and not self.conn.trailing_data[0]
        )

    def _take_body(self, data: bytes) -> None:
        assert self._head is not None
        self._body += data
        if self._gone is not None:
            # The next request waits. Reading goes on for a while: the end of a client is read, too.
            if len(self._body) > _WAITING_BYTES_MAX:
                self.flow.pause_reading()
        elif len(self._body) >= self._head.body_length:
            self._gone = asyncio.Event()
            task = self.loop.create_task(self._answer(self._head, self._gone))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _answer(self, head: Head, gone: asyncio.Event) -> None:
        body = bytes(self._body[: head.body_length])
        del self._body[: head.body_length]
        try:
            answer = await self.express.answer(self._scope_of(head), body, gone)
            if not gone.is_set():
                self.transport.write(answer)
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.abort()
            raise
        self._next()

    def _scope_of(self, head: Head) -> dict[str, Any]:
        return {
            "type": "http",
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": head.method,
            "root_path": "",
            "path": head.path,
            "raw_path": head.path.encode(),
            "query_string": head.query,
            "headers": head.headers,
            "state": self.app_state.copy(),
        }

    def _next(self) -> None:
        """Go on with what came meanwhile."""
        self._head = self._gone = None
        waiting, self._body = bytes(self._body), bytearray()
        if self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self.flow.resume_reading()
        if waiting:
            self.data_received(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gone is not None:
            self._gone.set()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._gone is not None:
            self._is_ending = True
        else:
            super().shutdown()


class _Server(uvicorn.Server):
    """uvicorn's server without signal handlers and without ticks."""

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: asyncio.Event,
        listeners: Sequence[Listener],
        express: Express,
    ) -> None:
        super().__init__(config)
        self._express = express
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
        protocol = _Protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.express = self._express
        return protocol

    async def main_loop(self) -> None:
        await self._stopping.wait()


def with_date(app: ASGIApp) -> ASGIApp:
    """Adds the headers that uvicorn's ticks would keep: Date and Server."""

    async def dated(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(time.time(), usegmt=True).encode()  # noqa: TID251
                stamped = [(b"date", date), (b"server", b"Leveret")]
                message["headers"] = [*stamped, *message.get("headers", ())]
            await send(message)

        await app(scope, receive, send_dated)

    return dated
