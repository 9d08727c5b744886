"""Federation under `kill -9`, and with RabbitMQ as upstream and as downstream."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.compat.brokers import rabbitmq
from tests.serve.test_kill_tasks import WAIT_S, Server
from tools.rabbitmq import SERVER

pytestmark = pytest.mark.compiled_only("links have one form, and tests/http tests them in both")

MESSAGES = 2000
with_rabbitmq = pytest.mark.skipif(not SERVER.exists(), reason="RabbitMQ is not installed")


def wait_until(is_so: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s, "not in time"
        time.sleep(0.05)


def set_up(server: Server, name: str, upstream: str, **keys: object) -> None:
    """Federate the exchange `x` and the queue `jobs` of a broker."""
    server.ask("PUT", "/api/cluster-name", {"name": name})
    value = {"uri": upstream, "reconnect-delay": 0.1, "prefetch-count": 50, **keys}
    server.ask("PUT", "/api/parameters/federation-upstream/%2F/u", {"value": value})
    policy = {"pattern": "^(x|jobs)$", "definition": {"federation-upstream": "u"}}
    server.ask("PUT", "/api/policies/%2F/p", policy)


def declare(uri: str) -> None:
    """Declare the fanout `x` with the queue `out`, and the queue `jobs`."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.exchange_declare("x", "fanout", durable=True)
        channel.queue_declare("out", durable=True)
        channel.queue_bind("out", "x", "")
        channel.queue_declare("jobs", durable=True)


def publish(uri: str, exchange: str, key: str, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            made = pika.BasicProperties(delivery_mode=2, message_id=str(number))
            channel.basic_publish(exchange, key, b"x" * (number % 500), made)


def consumed(uri: str, queue: str, count: int) -> Counter[str]:
    """Consume until so many different messages have come; return how often each came."""
    found: Counter[str] = Counter()
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        for frame, properties, _ in channel.consume(queue, inactivity_timeout=WAIT_S):
            assert frame is not None and properties is not None, f"{len(found)} of {count} came"
            found[properties.message_id or ""] += 1
            channel.basic_ack(frame.delivery_tag)
            if len(found) == count:
                break
    return found


def has_queue(uri: str, queue: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except ChannelClosedByBroker:
            return False
    return True


def statuses(server: Server) -> list[Any]:
    return [link["status"] for link in server.ask("GET", "/api/federation-links")]


def test_kills_of_both_ends_lose_no_message_of_an_exchange(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    up, down = Server(tmp_path / "up"), Server(tmp_path / "down")
    try:
        up.ask("PUT", "/api/cluster-name", {"name": "up"})
        declare(down.uri)
        set_up(down, "down", up.uri)
        wait_until(lambda: statuses(down) == ["running", "running"])
        publish(up.uri, "x", "", MESSAGES)
        for _ in range(6):
            time.sleep(rng.random() * 0.3)
            victim = rng.choice((up, down))
            victim.kill()
            victim.start()
        found = consumed(down.uri, "out", MESSAGES)
    finally:
        up.kill()
        down.kill()
    assert set(found) == {str(number) for number in range(MESSAGES)}
    print(f"{sum(found.values()) - MESSAGES} came twice")


@with_rabbitmq
@pytest.mark.parametrize("plugins", [(), ("rabbitmq_federation",)])
def test_rabbitmq_as_upstream(tmp_path: Path, plugins: tuple[str, ...]) -> None:
    server = Server(tmp_path)
    try:
        with rabbitmq(*plugins) as address:
            there = f"amqp://guest:guest@{address.host}:{address.port}/%2F"
            declare(server.uri)
            set_up(server, "down", there)
            wait_until(lambda: statuses(server) == ["running", "running"])
            publish(there, "x", "", 300)
            assert len(consumed(server.uri, "out", 300)) == 300
            publish(there, "", "jobs", 300)
            assert len(consumed(server.uri, "jobs", 300)) == 300
            assert has_queue(there, "federation: x -> down")
            server.ask("DELETE", "/api/policies/%2F/p")
            wait_until(lambda: not has_queue(there, "federation: x -> down"))
    finally:
        server.kill()


@with_rabbitmq
def test_rabbitmq_as_downstream(tmp_path: Path) -> None:
    server = Server(tmp_path)
    facts = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    document = {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*",
                         "read": ".*"}],
        "parameters": [{"vhost": "/", "component": "federation-upstream", "name": "u",
                        "value": {"uri": server.uri, "reconnect-delay": 1}}],
        "policies": [{"vhost": "/", "name": "p", "pattern": "^(x|jobs)$", "apply-to": "all",
                      "definition": {"federation-upstream": "u"}, "priority": 0}],
        "exchanges": [{"name": "x", "type": "fanout", "internal": False, **facts}],
        "queues": [{"name": "out", **facts}, {"name": "jobs", **facts}],
        "bindings": [{"source": "x", "vhost": "/", "destination": "out",
                      "destination_type": "queue", "routing_key": "", "arguments": {}}],
    }  # fmt: skip
    try:
        with rabbitmq("rabbitmq_federation", definitions=document) as address:
            there = f"amqp://guest:guest@{address.host}:{address.port}/%2F"

            def is_linked() -> bool:
                rows = server.ask("GET", "/api/bindings/%2F")
                return any(row["source"] == "x" for row in rows)

            wait_until(is_linked)
            kinds = {row["type"] for row in server.ask("GET", "/api/exchanges/%2F")}
            assert "x-federation-upstream" in kinds
            publish(server.uri, "x", "", 300)
            assert len(consumed(there, "out", 300)) == 300
            publish(server.uri, "", "jobs", 300)
            assert len(consumed(there, "jobs", 300)) == 300
    finally:
        server.kill()
