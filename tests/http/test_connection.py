"""One connection of the HTTP front, without a socket and with an application of the test."""

import asyncio
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from leveret.http.framework.body_budget import BodyBudget
from leveret.http.framework.request_counts import RequestCounts
from leveret.http.transport.fast_path import FastPath
from leveret.http.transport.http_connection import HttpConnection
from leveret.http.transport.open_connections import OpenConnections
from leveret.listening import Networks

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Unused(asyncio.Transport):
    """A transport that discards all bytes."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def test_disconnect_ends_all_pipelined_requests() -> None:
    """uvicorn informs only the last request. The others would write, and uvloop would raise."""
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            pass
        told.append(message["type"])

    async def scenario(peer: socket.socket) -> None:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        connection = HttpConnection(config=config, server_state=state, app_state={})
        unused = Starlette()
        unused.state.bodies = BodyBudget()
        connection.fast_path = FastPath(unused, {}, RequestCounts())
        connection.open_connections = OpenConnections(
            most=1, of_address_max=0, descriptors_end=0, proxies=Networks("")
        )
        connection.connection_made(Unused({"socket": peer}))
        connection.data_received(GET * 3)
        connection.connection_lost(ConnectionResetError())
        async with asyncio.timeout(60):
            await asyncio.gather(*state.tasks)

    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as peer:
            asyncio.run(scenario(peer))
    assert told == ["http.disconnect"]  # the other requests had not begun
