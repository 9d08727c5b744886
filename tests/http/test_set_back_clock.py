"""A machine whose time was set back between two starts of a node, or while it runs."""

import time

import pika
import pytest

from leveret.clock import Clock
from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import START_S
from leveret.testing.disk import FakeDisk
from tests.http.asking import ask

BACK_S = 2 * 60 * 60
FAULT = (
    "the machine's time is 2 h before the newest entry of the log: expiries, delays and leases "
    "from before that entry come up to 2 h late"
)


def publish(server: RunningBroker, body: bytes, delay_ms: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        kind = {"x-delayed-type": "fanout"}
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=kind)
        channel.queue_bind("q", "later")
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay_ms})
        channel.basic_publish("later", "", body, properties)


def taken(server: RunningBroker) -> bytes | None:
    """Take the next ready message."""
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        body: bytes | None = connection.channel().basic_get("q", auto_ack=True)[2]
        return body


def test_the_node_says_so_and_serves_delays_by_the_new_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FakeDisk()
    with broker(disk=disk, clock=ManualClock(START_S + BACK_S)) as server:
        publish(server, b"old", 5_000)
    assert "the machine's time" not in caplog.text
    clock = ManualClock(START_S)
    with broker(http=True, disk=disk, clock=clock) as server:
        assert caplog.text.count(FAULT) == 1
        status, health = ask(server, "GET", "/api/health")
        assert (status, health["status"], health["clock"]) == (200, "ok", FAULT)
        publish(server, b"new", 5_000)
        clock.advance(5)
        assert taken(server) == b"new"
        assert taken(server) is None
        clock.advance(BACK_S)
        assert taken(server) == b"old"
        assert "clock" not in ask(server, "GET", "/api/health")[1]


def test_a_running_node_says_that_its_time_is_ahead_until_both_agree() -> None:
    offset_s = 0.0
    clock = Clock(wall_ns=lambda: time.time_ns() + int(offset_s * 1e9))
    with broker(http=True, disk=FakeDisk(), clock=clock) as server:
        assert "clock" not in ask(server, "GET", "/api/health")[1]
        offset_s = -BACK_S - 20 * 60  # "2 h" may take a while to be asked for
        status, health = ask(server, "GET", "/api/health")
        assert (status, health["status"]) == (200, "ok")
        assert health["clock"].startswith(
            "the machine's time was set back and is 2 h behind the time of the broker, which runs "
            "at half speed until both agree"
        )
        offset_s = 1.0
        assert "clock" not in ask(server, "GET", "/api/health")[1]
