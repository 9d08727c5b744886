"""Shovels between brokers, inside one broker, and to HTTP; their status and their commands."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason

WAIT_S = 60.0


class Client:
    """A channel, and the shovel API of a broker."""

    def __init__(self, server: RunningBroker) -> None:
        self.server = server
        self.connection = pika.BlockingConnection(pika.URLParameters(server.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def declare(self, *names: str, **arguments: object) -> None:
        for name in names:
            self.channel.queue_declare(name, durable=True, arguments=arguments)

    def publish(self, queue: str, *bodies: str, **properties: Any) -> None:
        made = pika.BasicProperties(delivery_mode=2, **properties)
        for body in bodies:
            self.channel.basic_publish("", queue, body.encode(), made)

    def put(self, name: str, **value: object) -> tuple[int, Any]:
        given = {key.replace("_", "-"): found for key, found in value.items()}
        return ask(self.server, "PUT", f"/api/parameters/shovel/%2F/{name}", {"value": given})

    def shovel(self, name: str) -> Any:
        return ask(self.server, "GET", f"/api/shovels/vhost/%2F/{name}")[1]

    def bodies(self, queue: str, count: int) -> list[str]:
        """Take messages until there are so many, and return their bodies."""
        found: list[str] = []

        def are_there() -> bool:
            frame, _, body = self.channel.basic_get(queue, auto_ack=True)
            if frame is not None:
                found.append(body.decode())
            return len(found) == count

        wait_until(are_there, pause_s=0.0)
        return found

    def count(self, queue: str) -> int:
        count: int = self.channel.queue_declare(queue, passive=True).method.message_count
        return count


def wait_until(is_so: Callable[[], object], pause_s: float = 0.01) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s, "not in time"
        time.sleep(pause_s)


@pytest.fixture
def near() -> Iterator[Client]:
    with broker(http=True) as server:
        client = Client(server)
        yield client
        client.connection.close()


@pytest.fixture
def far() -> Iterator[Client]:
    with broker(http=True) as server:
        client = Client(server)
        yield client
        client.connection.close()


def test_all_ways_between_two_brokers(near: Client, far: Client) -> None:
    """A shovel at the target, at the source, and at a third broker: contents arrive unchanged."""
    near.declare("in", "out")
    far.declare("a", "b")
    near.put("push", src_uri="amqp://", src_queue="out", dest_uri=far.server.url, dest_queue="a")
    near.put(
        "through", src_uri=far.server.url, src_queue="a", dest_uri=far.server.url, dest_queue="b"
    )
    near.put("pull", src_uri=far.server.url, src_queue="b", dest_uri="amqp://", dest_queue="in")
    headers = {"traceparent": "t", "n": 1, "list": [1, "x", {"k": True}]}
    big = "x" * 300_000
    near.publish("out", "0", big, *map(str, range(2, 500)), message_id="m", headers=headers)
    found: list[tuple[str, Any, Any]] = []
    for frame, properties, body in near.channel.consume("in", inactivity_timeout=WAIT_S):
        assert frame is not None and properties is not None and body is not None
        found.append((body.decode(), properties.headers, properties.message_id))
        if len(found) == 500:
            break
    assert [body for body, _, _ in found] == ["0", big, *map(str, range(2, 500))]
    assert all((table, number) == (headers, "m") for _, table, number in found)
    near.channel.cancel()
    wait_until(lambda: near.shovel("pull")["messages"] == 500)
    shown = near.shovel("push")
    assert (shown["state"], shown["src_queue"], shown["dest_queue"]) == ("running", "out", "a")
    assert shown["dest_uri"] == far.server.url.replace("guest:guest", "guest:******")
    everything = ask(near.server, "GET", "/api/shovels")[1]
    assert [one["name"] for one in everything] == ["pull", "push", "through"]
    assert "guest:guest" not in json.dumps(everything)
    assert ask(near.server, "GET", "/api/shovels/%2F")[1] == everything
    assert [near.count("out"), far.count("a"), far.count("b")] == [0, 0, 0]


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_shovel_ends_after_the_length_of_the_queue(
    near: Client, ack_mode: str, is_remote: bool
) -> None:
    near.declare("a", "b")
    near.publish("a", *map(str, range(30)))
    uri = near.server.url if is_remote else "amqp://"
    near.put(
        "once",
        src_uri=uri,
        src_queue="a",
        dest_uri=uri,
        dest_queue="b",
        ack_mode=ack_mode,
        src_delete_after="queue-length",
    )
    wait_until(lambda: ask(near.server, "GET", "/api/parameters/shovel/%2F")[1] == [])
    assert ask(near.server, "GET", "/api/shovels")[1] == []
    assert near.bodies("b", 30) == [str(n) for n in range(30)]
    near.publish("a", "late")
    assert near.count("a") == 1


def test_shovel_ends_after_a_number_of_messages(near: Client) -> None:
    near.declare("a", "b")
    near.publish("a", *map(str, range(10)))
    for mode in ("no-ack", "on-confirm"):
        near.put("some", src_uri="amqp://", src_queue="a", dest_uri="amqp://", dest_queue="b",
                 ack_mode=mode, src_delete_after=3)  # fmt: skip
        wait_until(lambda: ask(near.server, "GET", "/api/shovels")[1] == [])
    assert near.bodies("b", 6) == [str(n) for n in range(6)]
    assert near.bodies("a", 4) == [str(n) for n in range(6, 10)]


def test_exchanges_at_both_ends_and_added_headers(near: Client, far: Client) -> None:
    near.channel.exchange_declare("from", "topic")
    far.channel.exchange_declare("to", "topic")
    far.declare("q")
    far.channel.queue_bind("q", "to", "k.#")
    near.put(
        "x",
        src_uri=near.server.url,
        src_exchange="from",
        src_exchange_key="k.*",
        dest_uri=far.server.url,
        dest_exchange="to",
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"app_id": "shovel", "delivery_mode": 2, "headers": {"h": 1}},
    )
    wait_until(lambda: near.shovel("x")["state"] == "running")
    near.channel.basic_publish("from", "other", b"not this")
    near.channel.basic_publish(
        "from",
        "k.1",
        b"this",
        pika.BasicProperties(user_id="guest", type="t", headers={"own": "x"}),
    )
    wait_until(lambda: far.count("q") == 1)
    frame, properties, body = far.channel.basic_get("q", auto_ack=True)
    assert (frame.exchange, frame.routing_key, body) == ("to", "k.1", b"this")
    assert (properties.app_id, properties.delivery_mode, properties.type) == ("shovel", 2, "t")
    assert properties.user_id is None
    headers = properties.headers
    assert (headers["h"], headers["own"]) == (1, "x")
    assert headers["x-shovelled-timestamp"] > 1_700_000_000
    (mark,) = headers["x-shovelled"]
    assert (mark["shovel-name"], mark["shovelled-by"], mark["dest-exchange"]) == ("x", "test", "to")
    assert "guest:guest" not in str(mark)


def test_messages_that_the_target_refuses_stay_at_the_source(near: Client) -> None:
    near.declare("a")
    near.declare("full", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    near.publish("a", *map(str, range(5)))
    near.put("s", src_uri="amqp://", src_queue="a", dest_uri=near.server.url, dest_queue="full")
    wait_until(lambda: near.count("full") == 2)
    got = near.bodies("full", 5)
    assert sorted(got) == [str(n) for n in range(5)]
    wait_until(lambda: near.shovel("s")["messages"] == 5)


def test_deleted_queue_and_unreachable_broker(near: Client) -> None:
    near.declare("a", "b")
    near.put("s", src_uri="amqp://", src_queue="a", dest_uri="amqp://", dest_queue="b",
             src_predeclared=True, reconnect_delay=0.05)  # fmt: skip
    wait_until(lambda: near.shovel("s")["state"] == "running")
    near.channel.queue_delete("a")
    wait_until(lambda: near.shovel("s")["state"] == "terminated")
    wait_until(lambda: "no queue 'a'" in near.shovel("s").get("reason", ""))
    near.declare("a")
    near.publish("a", "again")
    assert near.bodies("b", 1) == ["again"]
    near.put("t", src_uri="amqp://guest:secret@127.0.0.1:1", src_queue="a", dest_uri="amqp://")
    wait_until(lambda: near.shovel("t")["state"] == "terminated")
    shown = near.shovel("t")
    assert "secret" not in json.dumps(shown)
    assert shown["reason"] == "127.0.0.1:1: Connection refused"
    assert ask(near.server, "GET", "/api/tasks/shovel:%252F:t")[1]["state"] == "failed"
    assert ask(near.server, "DELETE", "/api/tasks/shovel:%252F:t")[0] == 204
    assert ask(near.server, "GET", "/api/shovels/vhost/%2F/t")[0] == 404
    assert ask(near.server, "GET", "/api/parameters/shovel/%2F/t")[0] == 404


def test_a_wrong_password_is_told(near: Client) -> None:
    uri = near.server.url.replace("guest:guest", "guest:wrong")
    near.put("s", src_uri=uri, src_queue="a", dest_uri="amqp://")
    wait_until(lambda: near.shovel("s")["state"] == "terminated")
    assert "ACCESS_REFUSED" in near.shovel("s")["reason"]
    assert "wrong" not in near.shovel("s")["reason"]


def test_restart_and_change(near: Client) -> None:
    near.declare("a", "b", "c")
    near.put("s", src_uri="amqp://", src_queue="a", dest_uri="amqp://", dest_queue="b")
    near.publish("a", "1")
    assert near.bodies("b", 1) == ["1"]
    assert ask(near.server, "DELETE", "/api/shovels/vhost/%2F/s/restart")[0] == 204
    near.publish("a", "2")
    assert near.bodies("b", 1) == ["2"]
    near.put("s", src_uri="amqp://", src_queue="a", dest_uri="amqp://", dest_queue="c")
    near.publish("a", "3")
    assert near.bodies("c", 1) == ["3"]
    (task,) = ask(near.server, "GET", "/api/tasks")[1]
    assert (task["id"], task["kind"], task["state"]) == ("shovel:%2F:s", "shovel", "running")
    assert task["source"] == {"vhost": "/", "queue": "a"}
    wait_until(lambda: ask(near.server, "GET", "/api/tasks/shovel%3A%252F%3As")[1]["done"] == 1)
    assert ask(near.server, "DELETE", "/api/parameters/shovel/%2F/s")[0] == 204
    wait_until(lambda: not near.server.node.broker.vhost("/").queues["a"].consumers)
    near.publish("a", "4")
    assert (near.count("a"), near.count("c")) == (1, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"src-uri": None}, "'src-uri' must be an address"),
        ({"src-uri": "http://x"}, "is not an amqp:// or amqps:// address"),
        ({"src-uri": "amqp://user:pw@[bad/"}, "is not an address"),
        ({"src-uri": "amqp:///other"}, "for vhost 'other' give host"),
        ({"src-queue": None}, "Must specify 'src-exchange' or 'src-queue'"),
        ({"src-exchange": "e"}, "Cannot specify 'src-exchange' and 'src-queue'"),
        ({"dest-exchange": "e"}, "Cannot specify 'dest-exchange' and 'dest-queue'"),
        ({"ack-mode": "never"}, "'ack-mode' must be one of"),
        ({"src-prefetch-count": 0}, "must be from 1 to 65535"),
        ({"src-delete-after": "soon"}, "must be never, queue-length or a number"),
        ({"dest-publish-properties": {"colour": 1}}, "no property 'colour'"),
        ({"dest-publish-properties": {"priority": 300}}, "out of range"),
        ({"dest-protocol": "http"}, "is not an http:// or https:// address"),
        ({"dest-protocol": "amqp10"}, "'dest-protocol' must be one of"),
        ({"colour": "red"}, "Unrecognised terms ['colour']"),
    ],
)
def test_invalid_shovel_is_refused(near: Client, change: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {
        "src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b",
    }  # fmt: skip
    value = {name: found for name, found in {**good, **change}.items() if found is not None}
    status, why = reason(ask(near.server, "PUT", "/api/parameters/shovel/%2F/s", {"value": value}))
    assert status == 400
    assert text in why
    assert "pw" not in why
    assert ask(near.server, "GET", "/api/shovels")[1] == []


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answer with the statuses of a list; repeat the last one."""

    statuses: list[int]
    seen: list[tuple[bytes, dict[str, str]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((body, dict(self.headers.items())))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def endpoint(*statuses: int) -> Iterator[tuple[str, list[tuple[bytes, dict[str, str]]]]]:
    seen: list[tuple[bytes, dict[str, str]]] = []
    handler = type("Handler", (Endpoint,), {"statuses": list(statuses), "seen": seen})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook?k=1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_webhook_gets_bodies_and_headers(near: Client) -> None:
    near.declare("a")
    with endpoint(204) as (uri, seen):
        near.put("w", src_uri="amqp://", src_queue="a", dest_protocol="http", dest_uri=uri,
                 dest_http_headers={"Authorization": "Bearer x"})  # fmt: skip
        near.publish(
            "a", '{"a": 1}', message_id="ümlaut\n1", content_type="application/json",
            headers={"traceparent": "00-1", "n": [1], "odd name": "v"},
        )  # fmt: skip
        wait_until(lambda: seen)
        body, headers = seen[0]
        assert body == b'{"a": 1}'
        assert headers["Content-Type"] == "application/json"
        assert headers["X-Message-Id"] == "%C3%BCmlaut%0A1"
        assert (headers["X-Routing-Key"], headers["X-Redelivered"]) == ("a", "false")
        assert (headers["traceparent"], headers["X-Header-n"]) == ("00-1", "[1]")
        assert headers["X-Header-odd%20name"] == "v"
        assert headers["Authorization"] == "Bearer x"
        wait_until(lambda: near.shovel("w")["messages"] == 1)
        near.publish("a", *map(str, range(100)))
        wait_until(lambda: len(seen) == 101)
        wait_until(lambda: near.server.node.broker.vhost("/").queues["a"].unacked == 0)
        assert sorted(int(body) for body, _ in seen[1:]) == list(range(100))
        assert near.count("a") == 0
        assert ask(near.server, "DELETE", "/api/shovels/vhost/%2F/w")[0] == 204


def test_a_webhook_that_fails_is_tried_again_and_one_that_refuses_is_not(near: Client) -> None:
    near.declare("dead")
    near.declare("a", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    with endpoint(503, 429, 200, 422) as (uri, seen):
        near.put("w", src_uri="amqp://", src_queue="a", dest_protocol="http", dest_uri=uri,
                 dest_concurrency=1)  # fmt: skip
        near.publish("a", "again", "bad")
        wait_until(lambda: len(seen) == 4)
        assert [body for body, _ in seen] == [b"again"] * 3 + [b"bad"]
        assert near.bodies("dead", 1) == ["bad"]
        assert (near.count("a"), near.shovel("w")["messages"]) == (0, 1)
        assert ask(near.server, "DELETE", "/api/shovels/vhost/%2F/w")[0] == 204


def test_unreachable_webhook_is_logged_and_loses_nothing(
    near: Client, caplog: pytest.LogCaptureFixture
) -> None:
    near.declare("a")
    near.put("w", src_uri="amqp://", src_queue="a", dest_protocol="http",
             dest_uri="http://127.0.0.1:1/")  # fmt: skip
    near.publish("a", "1", "2")
    wait_until(lambda: near.server.node.broker.vhost("/").queues["a"].unacked == 2)
    wait_until(lambda: "no answer to a post to http://127.0.0.1:1/" in caplog.text)
    assert ask(near.server, "DELETE", "/api/shovels/vhost/%2F/w")[0] == 204
    wait_until(lambda: near.count("a") == 2)
    assert near.bodies("a", 2) == ["1", "2"]
