"""One connection of the HTTP front, without a socket and with an application of the test."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from leveret.http.framework.body_budget import BodyBudget
from leveret.http.framework.request_counts import RequestCounts
from leveret.http.transport import http_connection
from leveret.http.transport.fast_path import FastPath, Head
from leveret.http.transport.http_connection import HttpConnection
from leveret.http.transport.open_connections import OpenConnections
from leveret.listening import Networks

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK = b"POST /enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LONG_S = 3_600.0
SHORT_S = 0.05


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


class Observed(Unused):
    """A transport that keeps the written bytes, and knows when it was closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed.set()


class QuickCalls(FastPath):
    """A fast path whose calls are all quick. The test answers them."""

    def __init__(self) -> None:
        unused = Starlette()
        unused.state.bodies = BodyBudget()
        super().__init__(unused, dict.fromkeys([b"/enqueue"]), RequestCounts())  # type: ignore[arg-type]
        self.open: list[Callable[[bytes], None]] = []

    def begin(
        self,
        head: Head,
        body: bytes,
        send: Callable[[bytes], None],
        answer_by_task: Callable[[], None],
    ) -> bool:
        self.open.append(send)
        return True


def quick_connection(keep_alive_s: float) -> tuple[HttpConnection, QuickCalls, Observed]:
    """Return a connection that has had one quick call, and its parts."""
    config = uvicorn.Config(Starlette(), log_config=None, lifespan="off")
    config.load()
    connection = HttpConnection(config=config, server_state=ServerState(), app_state={})
    connection.timeout_keep_alive = keep_alive_s  # type: ignore[assignment]
    calls, transport = QuickCalls(), Observed()
    connection.fast_path = calls
    connection.open_connections = OpenConnections(
        most=1, of_address_max=0, descriptors_end=0, proxies=Networks("")
    )
    connection.connection_made(transport)
    connection.data_received(QUICK)
    calls.open.pop()(ANSWER)
    assert transport.written == ANSWER
    return connection, calls, transport


@pytest.mark.parametrize("calls_more", [0, 2])
def test_client_that_is_silent_after_quick_calls_is_disconnected(
    calls_more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", SHORT_S)

    async def scenario() -> None:
        connection, calls, transport = quick_connection(keep_alive_s=SHORT_S)
        for _ in range(calls_more):
            connection.data_received(QUICK)
            calls.open.pop()(ANSWER)
        async with asyncio.timeout(60):
            await transport.closed.wait()
        connection.connection_lost(None)

    asyncio.run(scenario())


def test_slow_head_after_a_quick_call_has_the_time_of_a_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", SHORT_S)

    async def scenario() -> None:
        connection, _, transport = quick_connection(keep_alive_s=LONG_S)
        connection.data_received(QUICK[:20])
        async with asyncio.timeout(60):
            await transport.closed.wait()
        connection.connection_lost(None)

    asyncio.run(scenario())


def test_client_that_waits_for_a_quick_call_is_not_disconnected() -> None:
    async def scenario() -> None:
        connection, calls, transport = quick_connection(keep_alive_s=LONG_S)
        connection.data_received(QUICK)
        connection.timeout_keep_alive_handler()  # the timer of the request before
        assert not transport.closed.is_set()
        calls.open.pop()(ANSWER)
        connection.timeout_keep_alive_handler()  # the client may be silent for longer
        assert not transport.closed.is_set()
        assert transport.written == ANSWER * 2
        connection.connection_lost(None)

    asyncio.run(scenario())


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
