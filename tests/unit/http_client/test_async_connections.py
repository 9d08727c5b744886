"""The connection pool of an event loop, on asyncio's loop and on uvloop."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from leveret.http_client.address import parse_address
from leveret.http_client.async_connections import AsyncConnectionPool
from leveret.http_client.errors import UnreachableError
from leveret.http_client.requests import RequestEncoder

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Loop:
    found: Loop = request.param
    return found


def run(new_loop: Loop, play: Callable[[str], Coroutine[Any, Any, None]], answer: bytes) -> None:
    """Run `play` with the URL of a server that sends `answer` to each request."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            while peer.recv(65536):
                if answer:
                    peer.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play(f"http://127.0.0.1:{server.getsockname()[1]}"))
    thread.join(60)
    server.close()


def test_a_connection_is_used_again(new_loop: Loop) -> None:
    async def play(url: str) -> None:
        address = parse_address(url)
        pool = AsyncConnectionPool(address)
        request = RequestEncoder(address).encode("GET", "/")
        for _ in range(3):
            assert (await pool.ask(request)).body == b"ok"
        pool.close()
        with pytest.raises(UnreachableError):
            await pool.ask(request)
        await asyncio.sleep(0)

    run(new_loop, play, ANSWER)


def test_abort_ends_a_call_that_waits_for_its_answer(new_loop: Loop) -> None:
    async def play(url: str) -> None:
        address = parse_address(url)
        pool = AsyncConnectionPool(address)
        request = RequestEncoder(address).encode("GET", "/")
        asyncio.get_running_loop().call_later(0.05, pool.abort)
        with pytest.raises(UnreachableError) as caught:
            await pool.ask(request)
        assert not caught.value.was_idle
        await asyncio.sleep(0)

    run(new_loop, play, b"")
