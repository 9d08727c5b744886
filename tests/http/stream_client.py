"""Publish to a stream, and read it over HTTP."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import pika
import pyarrow as pa

from leveret.engine.streams.stream import Stream
from leveret.testing.broker import RunningBroker

GUEST = "Basic " + b64encode(b"guest:guest").decode()
WITHIN_S = 150.0  # longer than a bulk read may wait for its worker


@contextmanager
def channel(server: RunningBroker) -> Iterator[Any]:
    """Open a channel with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()


def declare(opened: Any, **arguments: object) -> None:
    wanted: dict[str, object] = {"x-queue-type": "stream"}
    wanted.update({f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})
    opened.queue_declare("s", durable=True, arguments=wanted)


def publish(opened: Any, first: int, end: int, body: bytes = b"") -> None:
    for number in range(first, end):
        opened.basic_publish("", "s", body or b"%d" % number)


def ask(
    server: RunningBroker,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    auth: str = GUEST,
) -> tuple[int, Any, bytes]:
    """Return status, headers and body of a request for a stream of the default vhost."""
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=WITHIN_S)
    headers = {"Authorization": auth} if auth else {}
    connection.request(method, f"/api/streams/%2F/{path}", body, headers)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, answer.headers, found


def ask_json(
    server: RunningBroker, path: str, method: str = "GET", body: bytes | None = None
) -> tuple[int, Any]:
    status, _, found = ask(server, path, method, body)
    return status, json.loads(found) if found else None


def table(server: RunningBroker, query: str) -> pa.Table:
    """Return a range of a stream as an Arrow table."""
    status, headers, body = ask(server, f"s/batches?{query}")
    assert status == 200, body
    assert headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert body.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    found = pa.ipc.open_stream(body).read_all()
    found.validate(full=True)
    return found


def stream_of(server: RunningBroker) -> Stream:
    found = server.node.broker.vhosts["/"].queues["s"]
    assert isinstance(found, Stream)
    return found


def on_loop(server: RunningBroker, call: Callable[[], Any]) -> Any:
    """Return the result of a call in the thread of the broker."""

    async def run() -> Any:
        return call()

    loop = server.node.turns._loop
    return asyncio.run_coroutine_threadsafe(run(), loop).result(WITHIN_S)
