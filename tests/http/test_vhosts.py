"""Vhosts over HTTP: create, change, protect and delete them, with connections and contents."""

import json
import socket
from base64 import b64encode
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def connect(server: RunningBroker, vhost: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(server.host, server.port, vhost))


def test_vhost_is_created_shown_changed_and_deleted(server: RunningBroker) -> None:
    path = "/api/vhosts/a%2Fb"
    assert ask(server, "GET", path)[0] == 404
    body = {"description": "d", "tags": "x, y", "default_queue_type": "quorum", "tracing": True}
    assert ask(server, "PUT", path, body) == (201, None)
    status, vhost = ask(server, "GET", path)
    assert status == 200
    wanted = {
        "name": "a/b",
        "description": "d",
        "tags": ["x", "y"],
        "default_queue_type": "quorum",
        "tracing": True,
        "cluster_state": {"test": "running"},
        "messages": 0,
    }
    assert {key: vhost[key] for key in wanted} == wanted
    assert vhost["metadata"]["default_queue_type"] == "quorum"
    assert ask(server, "PUT", path, b"") == (204, None)
    _, vhost = ask(server, "GET", path)
    assert (vhost["description"], vhost["tags"], vhost["tracing"]) == ("", [], True)
    names = [vhost["name"] for vhost in ask(server, "GET", "/api/vhosts")[1]]
    assert names == ["/", "a/b"]
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "DELETE", path)[0] == 404


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"default_queue_type": "odd"}, "odd is not a valid queue type"),
        ({"default_queue_type": ""}, "default_queue_type must not be an empty string"),
        ({"tracing": "zz"}, "not_boolean: zz"),
        (b"{", "not_json"),
    ],
)
def test_invalid_vhost_is_refused_and_not_created(
    server: RunningBroker, body: object, text: str
) -> None:
    assert reason(ask(server, "PUT", "/api/vhosts/bad", body)) == (400, text)
    assert ask(server, "GET", "/api/vhosts/bad")[0] == 404


def test_creator_of_a_vhost_may_work_there(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/vhosts/mine")
    connection = connect(server, "mine")
    connection.channel().queue_declare("q", durable=True)
    connection.close()
    ask(server, "DELETE", "/api/vhosts/mine")


def test_protected_vhost_cannot_be_deleted(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/vhosts/kept")
    protection = "/api/vhosts/kept/deletion/protection"
    assert ask(server, "GET", protection) == (200, {"protected_from_deletion": False})
    assert ask(server, "POST", protection) == (204, None)
    assert ask(server, "GET", protection) == (200, {"protected_from_deletion": True})
    text = "Refusing to delete virtual host 'kept' because it is protected from deletion"
    assert ask(server, "DELETE", "/api/vhosts/kept") == (
        412,
        {"error": "precondition_failed", "reason": text},
    )
    assert ask(server, "DELETE", protection) == (204, None)
    assert ask(server, "DELETE", "/api/vhosts/kept") == (204, None)
    assert ask(server, "POST", protection)[0] == 404


def test_a_vhost_is_started_on_this_node_only(server: RunningBroker) -> None:
    assert ask(server, "POST", "/api/vhosts/%2F/start/test") == (204, None)
    assert reason(ask(server, "POST", "/api/vhosts/%2F/start/else")) == (400, "Unknown node: else")
    assert ask(server, "POST", "/api/vhosts/none/start/test")[0] == 404


def test_deleting_a_vhost_closes_its_connections_and_forgets_all_of_it(
    server: RunningBroker,
) -> None:
    ask(server, "PUT", "/api/vhosts/doomed", {"description": "d"})
    policy = {"pattern": "", "definition": {"max-length": 1}}
    assert ask(server, "PUT", "/api/policies/doomed/p", policy)[0] == 201
    assert ask(server, "PUT", "/api/operator-policies/doomed/o", policy)[0] == 201
    ask(server, "PUT", "/api/vhost-limits/doomed/max-queues", {"value": 5})
    upstream = {"value": {"uri": "amqp://x"}}
    ask(server, "PUT", "/api/parameters/federation-upstream/doomed/u", upstream)
    connection = connect(server, "doomed")
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("gone", auto_delete=True)
    channel.queue_declare("own", exclusive=True)
    channel.basic_publish("", "q", b"m", pika.BasicProperties(delivery_mode=2))
    channel.basic_consume("q", lambda *_: None)
    channel.basic_consume("gone", lambda *_: None)
    connection.process_data_events(0)
    assert ask(server, "DELETE", "/api/vhosts/doomed") == (204, None)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(20)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - vhost 'doomed' is deleted"
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(server, "doomed")
    ask(server, "PUT", "/api/vhosts/doomed")
    assert ask(server, "GET", "/api/queues/doomed") == (200, [])
    assert ask(server, "GET", "/api/policies/doomed") == (200, [])
    assert ask(server, "GET", "/api/operator-policies/doomed") == (200, [])
    assert ask(server, "GET", "/api/vhost-limits/doomed") == (200, [])
    assert ask(server, "GET", "/api/parameters/federation-upstream/doomed") == (200, [])
    assert ask(server, "GET", "/api/vhosts/doomed")[1]["description"] == ""
    ask(server, "DELETE", "/api/vhosts/doomed")


def test_queues_are_of_the_vhosts_default_type(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/vhosts/quorum", {"default_queue_type": "quorum"})
    connection = connect(server, "quorum")
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_declare("own", exclusive=True)
    _, queue = ask(server, "GET", "/api/queues/quorum/q")
    assert (queue["type"], queue["arguments"]) == ("quorum", {"x-queue-type": "quorum"})
    assert ask(server, "GET", "/api/queues/quorum/own")[1]["type"] == "classic"
    connection.close()
    ask(server, "DELETE", "/api/vhosts/quorum")


LATE = [
    ("queues/late/q", "{}"),
    ("exchanges/late/x", "{}"),
    ("policies/late/p", '{"pattern": "", "definition": {"max-length": 1}}'),
    ("parameters/federation-upstream/late/u", '{"value": {}}'),
    ("vhost-limits/late/max-queues", '{"value": 1}'),
    ("permissions/late/guest", '{"configure": "", "write": "", "read": ""}'),
]


@pytest.mark.parametrize(("path", "body"), LATE)
def test_body_that_arrives_after_its_vhost_is_deleted_changes_nothing(
    server: RunningBroker, path: str, body: str
) -> None:
    assert ask(server, "PUT", "/api/vhosts/late")[0] == 201
    login = b64encode(b"guest:guest").decode()
    head = (
        f"PUT /api/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((server.host, server.http_port), timeout=60) as peer:
        peer.sendall(head.encode())
        assert b" 100 " in peer.recv(4096)  # the server waits for the body
        assert ask(server, "DELETE", "/api/vhosts/late")[0] == 204
        peer.sendall(body.encode())
        answer = peer.recv(4096)
    assert answer.split(b" ")[1] in (b"400", b"404"), answer
    assert "late" not in json.dumps(ask(server, "GET", "/api/definitions")[1])


def test_names_that_are_not_utf_8_are_shown_and_break_no_list(server: RunningBroker) -> None:
    policy = {"pattern": "^odd", "definition": {"max-length": 1}}
    assert ask(server, "PUT", "/api/vhosts/v%FF")[0] == 201
    assert ask(server, "PUT", "/api/queues/v%FF/odd%FF", {})[0] == 201
    assert ask(server, "PUT", "/api/policies/v%FF/p%FF", policy)[0] == 201
    try:
        for path in ("queues", "exchanges", "bindings", "policies", "definitions", "vhosts"):
            assert ask(server, "GET", f"/api/{path}")[0] == 200, path
        _, found = ask(server, "GET", "/api/queues/v%FF/odd%FF")
        assert (found["name"], found["policy"]) == ("odd\ufffd", "p?")
    finally:
        assert ask(server, "DELETE", "/api/vhosts/v%FF")[0] == 204
