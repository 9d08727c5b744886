"""Deduplication as pika sees it, over `leveret serve` that is stopped and killed in between."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.process import Child

MEMORY: dict[str, Any] = {"x-deduplication": {"window_ms": 3_600_000}}


def started(data: Path) -> tuple[Child, int]:
    serve = [sys.executable, "-m", "leveret", "serve", "--host", "127.0.0.1"]
    child = Child([*serve, "--amqp-port", "0", "--http-port", "0", "--data", data])
    ready = child.wait_for(r"^leveret ready amqp=(\S+):(\d+) http=\S+:\d+$")
    return child, int(ready[2])


@contextmanager
def channel_to(port: int) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments=MEMORY)
        channel.queue_declare("all", durable=True)
        channel.exchange_declare("once", "fanout", durable=True, arguments=MEMORY)
        channel.queue_bind("all", "once")
        yield channel
    finally:
        connection.close()


def publish(channel: BlockingChannel, exchange: str, body: str, key: object) -> None:
    """Confirmed when this returns, or pika raises."""
    properties = pika.BasicProperties(delivery_mode=2, headers={"x-deduplication-id": key})
    channel.basic_publish(exchange, "q", body.encode(), properties, mandatory=True)


def drain(channel: BlockingChannel, queue: str) -> list[str]:
    bodies: list[str] = []
    while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(found[2].decode())
    return bodies


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_duplicates_are_confirmed_and_queued_once_whatever_ends_the_node(
    tmp_path: Path, end: str
) -> None:
    child, port = started(tmp_path)
    try:
        with channel_to(port) as channel:
            for body in ("1", "1 again"):
                publish(channel, "", body, "a")
                publish(channel, "once", body, "a")
            publish(channel, "", "2", 7)
            publish(channel, "", "3", b"\x00\xff")
            assert channel.queue_declare("q", passive=True).method.message_count == 3
    finally:
        child.stop() if end == "stop" else child.kill()
    assert "Traceback" not in child.output()
    child, port = started(tmp_path)
    try:
        with channel_to(port) as channel:
            for key in ("a", 7, b"\x00\xff", "7", "b"):
                publish(channel, "", str(key), key)
            publish(channel, "once", "1 after the end", "a")
            publish(channel, "once", "new", "b")
            assert drain(channel, "q") == ["1", "2", "3", "7", "b"]
            assert drain(channel, "all") == ["1", "new"]
    finally:
        child.stop()
    assert "Traceback" not in child.output()
