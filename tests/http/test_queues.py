"""Queues over HTTP, as RabbitMQ's clients read them: lists, one queue, peek."""

import http.client
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from leveret.testing.disk import FakeDisk

LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        channel.queue_declare("plain", durable=True)
        channel.queue_declare("sorted", arguments={"x-max-priority": 3, "x-message-ttl": 600000})
        channel.queue_declare("odd/näme %2F", auto_delete=True)
        properties = pika.BasicProperties(priority=2, headers={"a": 1, "b": [True, "x"]})
        channel.basic_publish("", "plain", "grüß".encode(), properties)
        channel.basic_publish("", "plain", b"\xff\xfe")
        channel.basic_publish("", "plain", b"third")
        channel.basic_consume("plain", lambda *_: None, consumer_tag="c")
        channel.basic_cancel("c")
        channel.basic_get("plain")
        yield server
        connection.close()


def ask(
    server: RunningBroker, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, Any]:
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=60)
    connection.request(method, path, headers=LOGIN if headers is None else headers)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response, body


def test_a_stream_shows_its_messages_though_one_is_in_flight() -> None:
    with broker(http=True) as server:
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for body in (b"a", b"b"):
            channel.basic_publish("", "s", body)
        channel.basic_qos(prefetch_count=1)
        next(channel.consume("s", arguments={"x-stream-offset": "first"}))
        _, queue = ask(server, "/api/queues/%2F/s")
        connection.close()
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacked"]) == (2, 2, 1)


def test_queue_has_the_fields_that_clients_read(server: RunningBroker) -> None:
    response, queue = ask(server, "/api/queues/%2F/plain")
    assert response.status == 200
    wanted = {
        "name": "plain",
        "vhost": "/",
        "type": "classic",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {},
        "node": "test",
        "state": "running",
        "consumers": 0,
        "messages": 3,
        "messages_scheduled": 0,
        "messages_damaged": 0,
        "damage": [],
        "durability": "none",
    }
    assert {name: queue[name] for name in wanted} == wanted
    assert queue["messages_ready"] + queue["messages_unacknowledged"] == 3
    assert queue["messages_unacked"] == queue["messages_unacknowledged"]
    assert queue["message_bytes"] == 6 + 2 + 5
    assert queue["message_stats"]["publish"] == 3


def test_only_a_durable_queue_is_on_disk() -> None:
    with broker(http=True, disk=FakeDisk()) as server:
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        for name in ("durable", "transient"):
            connection.channel().queue_declare(name, durable=name == "durable")
        found = [queue["durability"] for queue in ask(server, "/api/queues")[1]]
        connection.close()
    assert found == ["sync", "none"]


def test_queues_are_listed_as_bare_arrays(server: RunningBroker) -> None:
    _, everywhere = ask(server, "/api/queues")
    _, here = ask(server, "/api/queues/%2F")
    assert everywhere == here
    assert [queue["name"] for queue in here] == ["odd/näme %2F", "plain", "sorted"]
    assert here[2]["arguments"] == {"x-max-priority": 3, "x-message-ttl": 600000}
    _, odd = ask(server, "/api/queues/%2F/odd%2Fn%C3%A4me%20%252F")
    assert {name: odd[name] for name in here[0]} == here[0]


@pytest.mark.parametrize("path", ["/api/queues/none", "/api/queues/%2F/none", "/api/queues//x"])
def test_unknown_queue_is_a_404(server: RunningBroker, path: str) -> None:
    response, body = ask(server, path)
    assert response.status == 404
    assert body == {"error": "Object Not Found", "reason": "Not Found"}


@pytest.mark.parametrize("sent", ["", "Basic", "Basic !!", "Bearer x", "Basic Z3Vlc3Q6d3Jvbmc="])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/queues"),
        ("GET", "/api/queues/%2F/plain/peek"),
        ("GET", "/api/backup"),
        ("GET", "/api/backup/%2F/plain"),
        ("POST", "/api/restore/%2F/plain"),
    ],
)
def test_nothing_is_shown_without_a_login(
    server: RunningBroker, sent: str, method: str, path: str
) -> None:
    response, body = ask(server, path, {"Authorization": sent} if sent else {}, method)
    assert response.status == 401
    assert response.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert body == {"error": "not_authorized", "reason": "Login failed"}


def test_peek_shows_messages_and_leaves_them(server: RunningBroker) -> None:
    _, before = ask(server, "/api/queues/%2F/plain")
    _, messages = ask(server, "/api/queues/%2F/plain/peek?count=10")
    _, after = ask(server, "/api/queues/%2F/plain")
    assert before == after
    assert len(messages) == before["messages_ready"]
    last = messages[-1]
    assert (last["payload"], last["payload_encoding"]) == ("third", "string")
    assert (last["exchange"], last["routing_key"], last["message_count"]) == ("", "plain", 0)
    binary = messages[-2]
    assert binary["payload_encoding"] == "base64"
    assert b64decode(binary["payload"]) == b"\xff\xfe"
    _, cut = ask(server, "/api/queues/%2F/plain/peek?encoding=base64&truncate=2&from_end=true")
    assert (b64decode(cut[0]["payload"]), cut[0]["payload_bytes"]) == (b"th", 5)


@pytest.mark.parametrize("query", ["count=-1", "count=x", "count=1001", "truncate=9999999999"])
def test_peek_beyond_its_limits_is_refused(server: RunningBroker, query: str) -> None:
    response, body = ask(server, f"/api/queues/%2F/plain/peek?{query}")
    assert (response.status, body["error"]) == (400, "bad_request")


def test_node_without_a_disk_has_nothing_to_back_up(server: RunningBroker) -> None:
    response, body = ask(server, "/api/backup")
    assert response.status == 503
    assert body["reason"] == "this node keeps nothing on disk"


def test_a_page_has_only_the_wanted_kinds_and_sums_over_all_pages(server: RunningBroker) -> None:
    def page(query: str) -> Any:
        return ask(server, f"/api/queues/%2F?page=1&page_size=1&columns=name&{query}")[1]

    whole = page("totals=true&sort=messages_ready&sort_reverse=true")
    assert (whole["items"], whole["total_count"]) == ([{"name": "plain"}], 3)
    assert whole["totals"] == {"messages_ready": 2, "messages_unacknowledged": 1, "consumers": 0}
    found = page("only=with_messages,without_consumers&totals=true")
    assert (found["filtered_count"], found["total_count"]) == (1, 3)
    assert page("only=streams&totals=true")["totals"]["messages_ready"] == 0
    assert "totals" not in page("")
    response, refused = ask(server, "/api/queues?only=nonsense")
    assert response.status == 400
    assert "only must be one of: with_messages" in refused["reason"]


@pytest.mark.parametrize(
    "sort",
    [
        "name",
        "vhost",
        "type",
        "messages",
        "messages_ready",
        "messages_unacknowledged",
        "messages_scheduled",
        "message_bytes",
        "consumers",
        "consumer_utilisation",
        "policy",
        "memory",
        "message_stats.publish_details.rate",
        "message_stats.deliver_get_details.rate",
    ],
)
@pytest.mark.parametrize("is_reversed", ["false", "true"])
def test_pages_are_the_parts_of_the_whole_sorted_list(
    server: RunningBroker, sort: str, is_reversed: str
) -> None:
    query = f"sort={sort}&sort_reverse={is_reversed}&columns=name,{sort}"
    whole = ask(server, f"/api/queues/%2F?{query}")[1]
    pages = [
        ask(server, f"/api/queues/%2F?{query}&page={number}&page_size=1")[1]["items"]
        for number in (1, 2, 3)
    ]
    assert [queue["name"] for page in pages for queue in page] == [q["name"] for q in whole]
    if not sort.endswith("rate"):
        values = [queue.get(sort) or 0 for queue in whole]
        assert values == sorted(values, reverse=is_reversed == "true")
