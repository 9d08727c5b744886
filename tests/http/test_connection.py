"""A connection of the HTTP front, with an application of the test behind it."""

import asyncio

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from leveret.http.connection import HttpConnection
from leveret.http.express import Express
from leveret.http.requests import Requests

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class _Connection(HttpConnection):
    lost: asyncio.Event

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


class Stage:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.lost = asyncio.Event()
        self.state = ServerState()
        self._config = uvicorn.Config(self.app, log_config=None, lifespan="off")
        self._config.load()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    def protocol(self) -> HttpConnection:
        made = _Connection(config=self._config, server_state=self.state, app_state={})
        made.lost = self.lost
        made.express = Express(Starlette(), {}, Requests())
        return made


def test_whoever_hangs_up_on_several_requests_ends_them_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvicorn tells the last one alone: the others would write, and uvloop raises."""

    async def scenario() -> None:
        stage = Stage()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(stage.protocol, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(GET * 3)
        async with asyncio.timeout(20):
            await stage.begun.wait()
            writer.transport.abort()
            await stage.lost.wait()
            stage.may_answer.set()
            await asyncio.gather(*stage.state.tasks)
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert not caplog.records
