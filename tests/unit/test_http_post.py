"""HttpPoster against a real HTTP server, and against sockets that do not speak HTTP."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from leveret.errors import ConfigError
from leveret.http_post import HttpPoster, PostAnswer, PostError
from tests.http_target import Target, http_target

T = TypeVar("T")


@pytest.fixture
def target() -> Iterator[Target]:
    with http_target() as found:
        yield found


Play = Callable[[HttpPoster], Coroutine[Any, Any, T]]


def run(url: str, play: Play[T], concurrency: int = 4, timeout_s: float = 60.0) -> T:
    """Return the result of `play` with a poster of its own."""

    async def played() -> T:
        poster = HttpPoster(url, concurrency=concurrency, timeout_s=timeout_s)
        try:
            return await play(poster)
        finally:
            poster.close()

    return asyncio.run(played())


def post_nothing(poster: HttpPoster) -> Coroutine[Any, Any, PostAnswer]:
    return poster.post({}, b"")


@contextlib.contextmanager
def listener(*chunks: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """Accept one connection and send these bytes, whatever the request is."""
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                for chunk in chunks:
                    peer.sendall(chunk)
                    ended.wait(pause_s)
                if not chunks:
                    ended.wait()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    finally:
        ended.set()
        server.close()
        thread.join(60)


def test_posts_body_and_headers_and_gives_the_status(target: Target) -> None:
    target.answer = lambda _: 503
    assert run(target.url, lambda poster: poster.post({"X-A": "1"}, b"body")).status == 503
    (request,) = target.requests
    assert request.path == "/hook?x=1"
    assert request.headers["X-A"] == "1"
    assert request.body == b"body"


def test_connection_is_kept(target: Target) -> None:
    async def many(found: HttpPoster) -> None:
        for _ in range(20):
            await found.post({}, b"")

    run(target.url, many, concurrency=1)
    assert len(target.requests) == 20
    assert target.connections == 1


def test_connection_that_was_closed_meanwhile_is_no_failure(target: Target) -> None:
    async def several(found: HttpPoster) -> list[int]:
        return [(await found.post({}, b"")).status for _ in range(5)]

    target.closes_after = True
    assert run(target.url, several, concurrency=1) == [200] * 5
    assert len(target.requests) == 5


def test_no_more_run_at_once_than_allowed(target: Target) -> None:
    together = threading.Barrier(3)

    def answer(_: object) -> int:
        together.wait(60)
        return 200

    async def many(found: HttpPoster) -> None:
        await asyncio.gather(*(found.post({}, b"") for _ in range(12)))

    target.answer = answer
    run(target.url, many, concurrency=3)
    assert target.at_once_most == 3
    assert target.connections == 3


def test_no_answer_in_time_is_a_failure_and_frees_the_connection(target: Target) -> None:
    def answer(_: object) -> int:
        if len(target.requests) == 1:
            target.release.wait(60)
        return 200

    async def twice(found: HttpPoster) -> int:
        with pytest.raises(PostError, match="no answer within 4 s"):
            await found.post({}, b"")
        return (await found.post({}, b"")).status

    target.answer = answer
    assert run(target.url, twice, concurrency=1, timeout_s=4.0) == 200


def test_server_that_drips_does_not_hold_a_request_beyond_its_deadline() -> None:
    async def once(found: HttpPoster) -> None:
        with pytest.raises(PostError, match="no answer within"):
            await found.post({}, b"")

    drips = [b"HTTP/1.1 200 OK\r\n", *(b"X: 1\r\n" for _ in range(900))]
    started_s = time.monotonic()
    with listener(*drips, pause_s=0.1) as url:
        run(url, once, timeout_s=0.5)
    assert time.monotonic() - started_s < 45  # the whole answer would take twice as long


@pytest.mark.parametrize("said", [b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_answer_that_is_not_http_is_a_failure(said: bytes) -> None:
    with listener(said) as url, pytest.raises(PostError):
        run(url, post_nothing)


def test_nobody_listening_is_a_failure() -> None:
    with pytest.raises(PostError, match="refused"):
        run("http://127.0.0.1:1/", post_nothing)


@pytest.mark.parametrize("url", ["ftp://host/", "host", "http://"])
def test_url_must_be_http(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an http"):
        HttpPoster(url, concurrency=1, timeout_s=1)


def test_connection_goes_to_the_address_that_was_checked(target: Target) -> None:
    """The name is not looked up a second time: it would not be found."""

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def played() -> int:
        url = target.url.replace("127.0.0.1", "checked.invalid")
        poster = HttpPoster(url, concurrency=1, timeout_s=60.0, resolve=resolve)
        try:
            return (await poster.post({}, b"x")).status
        finally:
            poster.close()

    asked: list[str] = []
    assert asyncio.run(played()) == 200
    assert asked == ["checked.invalid"]
