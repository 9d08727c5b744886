"""A broker process for the client tests, and names that are cleaned up after each test.

The broker is `leveret serve` in a process of its own, one per session and test worker, or the one
that LEVERET_TEST_AMQP=host:port names. As that one may be shared and live on, a test takes every
queue and exchange name from `fresh`, and what it cannot name itself goes to `leftovers`; both are
deleted when the module is done.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pika
import pytest

from tests.clients.process import Child
from tests.clients.relay import Relay

Address = tuple[str, int]


@pytest.fixture(scope="session")
def amqp_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Where the broker under test listens for AMQP."""
    if given := os.environ.get("LEVERET_TEST_AMQP"):
        host, _, port = given.rpartition(":")
        yield host, int(port)
        return
    data = tmp_path_factory.mktemp("broker")
    serve = [sys.executable, "-m", "leveret", "serve", "--host", "127.0.0.1"]
    broker = Child([*serve, "--amqp-port", "0", "--http-port", "0", "--data", data])
    try:
        ready = broker.wait_for(r"^leveret ready amqp=(\S+):(\d+) http=\S+:\d+$")
        yield ready[1], int(ready[2])
    finally:
        code = broker.stop()
    assert code == 0, broker.output()
    assert "Traceback" not in broker.output(), broker.output()


@pytest.fixture(scope="session")
def amqp_url(amqp_address: Address) -> str:
    host, port = amqp_address
    return f"amqp://guest:guest@{host}:{port}/%2F"


@pytest.fixture
def relay(amqp_address: Address) -> Iterator[Relay]:
    """A line to the broker that the test can cut."""
    with Relay([amqp_address]) as relay:
        yield relay


@pytest.fixture(scope="module")
def leftovers(amqp_url: str) -> Iterator[list[str]]:
    """Names of queues and exchanges to delete after the module's tests."""
    names: list[str] = []
    yield names
    with closing(pika.BlockingConnection(pika.URLParameters(amqp_url))) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_delete(name)
            channel.exchange_delete(name)


@pytest.fixture(scope="module")
def fresh(leftovers: list[str]) -> Callable[[str], str]:
    """Makes names of queues and exchanges that nobody else uses."""

    def make(name: str) -> str:
        leftovers.append(f"clients.{name}.{uuid.uuid4().hex[:12]}")
        return leftovers[-1]

    return make
