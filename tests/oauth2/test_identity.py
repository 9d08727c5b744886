"""A token whose subject has the name of a local user: two users, who share only the name."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker
from tests.oauth2.conftest import ALL, Sign, connected

TAGGED = ALL + " broker.tag:management"
ADMIN = ALL + " broker.tag:administrator"


def call(
    server: RunningBroker, method: str, path: str, authorization: str, body: Any = None
) -> tuple[int, Any]:
    with closing(HTTPConnection(server.host, server.http_port, timeout=60)) as client:
        sent = None if body is None else json.dumps(body)
        client.request(method, path, sent, {"Authorization": authorization})
        answer = client.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None


def basic(login: str) -> str:
    return "Basic " + b64encode(login.encode()).decode()


GUEST = basic("guest:guest")
LOCAL = basic("hare:local")


@pytest.fixture(autouse=True)
def local_hare(server: RunningBroker) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    body = {"password": "local", "tags": "management", "permissions": {"/": everything}}
    assert call(server, "PUT", "/api/users/hare", GUEST, body)[0] == 201


@pytest.mark.parametrize(
    "path", ["/api/users/hare", "/api/users/hare/permissions", "/api/user-limits/hare"]
)
def test_entry_of_the_local_user_is_not_shown(server: RunningBroker, sign: Sign, path: str) -> None:
    assert call(server, "GET", path, LOCAL)[0] == 200
    assert call(server, "GET", path, f"Bearer {sign(TAGGED)}")[0] == 401
    status, found = call(server, "GET", "/api/whoami", f"Bearer {sign(TAGGED)}")
    assert (status, found["name"]) == (200, "hare")


def names(server: RunningBroker, authorization: str, path: str = "/api/connections") -> list[str]:
    status, found = call(server, "GET", path, authorization)
    assert status == 200
    return sorted(one["name"] for one in found)


def test_connections_are_shown_and_closed_by_their_own_user_only(
    server: RunningBroker, sign: Sign
) -> None:
    token = f"Bearer {sign(TAGGED)}"
    with connected(server, "local", "hare"):
        (local,) = names(server, GUEST)
        assert names(server, LOCAL) == [local]
        assert names(server, token) == []
        assert names(server, token, "/api/connections/username/hare") == []
        path = "/api/connections/" + local.replace(" ", "%20").replace(">", "%3E")
        assert call(server, "GET", path, token)[0] == 401
        assert call(server, "DELETE", path, token)[0] == 401
        assert call(server, "GET", "/api/overview", token)[1]["object_totals"]["connections"] == 0
        with connected(server, sign()):
            both = names(server, GUEST)
            assert len(both) == 2
            assert names(server, token) == [one for one in both if one != local]
            assert names(server, LOCAL, "/api/connections/username/hare") == [local]


def test_limits_of_the_local_user_count_only_its_own(server: RunningBroker, sign: Sign) -> None:
    path = "/api/user-limits/hare/max-connections"
    assert call(server, "PUT", path, GUEST, {"value": 1})[0] == 204
    with connected(server, sign()), connected(server, sign()), connected(server, "local", "hare"):
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connected(server, "local", "hare")
        connected(server, sign()).close()


def test_deleting_the_local_user_leaves_the_other_connected(
    server: RunningBroker, sign: Sign
) -> None:
    with connected(server, sign()) as connection:
        assert call(server, "DELETE", "/api/users/hare", GUEST)[0] == 204
        connection.channel().queue_declare("still-here")


def test_vhost_of_the_token_user_is_not_opened_to_the_local_user(
    server: RunningBroker, sign: Sign
) -> None:
    assert call(server, "PUT", "/api/vhosts/den", f"Bearer {sign(ADMIN)}", {})[0] == 201
    assert call(server, "GET", "/api/vhosts/den/permissions", GUEST)[1] == []


def test_user_id_of_the_local_user_cannot_be_claimed(server: RunningBroker, sign: Sign) -> None:
    properties = pika.BasicProperties(user_id="hare")
    body = {
        "properties": {"user_id": "hare"},
        "routing_key": "q",
        "payload": "",
        "payload_encoding": "string",
    }
    path = "/api/exchanges/%2F/amq.default/publish"
    token = f"Bearer {sign(TAGGED)}"
    with connected(server, sign()) as connection:
        channel = connection.channel()
        channel.basic_publish("", "q", b"", properties)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user_id"):
            channel.queue_declare("q")
    assert call(server, "POST", path, token, body)[0] == 400
    assert call(server, "DELETE", "/api/users/hare", GUEST)[0] == 204
    assert call(server, "POST", path, token, body)[0] == 200


def test_audit_and_tasks_name_the_two_differently(server: RunningBroker, sign: Sign) -> None:
    with connected(server, sign()) as connection:
        connection.channel().queue_declare("q")
        connection.channel().queue_delete("q")
    call(server, "PUT", "/api/queues/%2F/r", f"Bearer {sign(TAGGED)}", {})
    call(server, "PUT", "/api/queues/%2F/s", LOCAL, {})
    events = server.node.view.authenticator.audit.recent(10)
    found = {(event.user, event.action, event.target) for event in events}
    assert ("oauth2:hare", "login", "amqp091") in found
    assert ("oauth2:hare", "queue.delete", "/: q") in found
    assert ("oauth2:hare", "PUT", "/api/queues/%2F/r") in found
    assert ("hare", "PUT", "/api/queues/%2F/s") in found


def test_local_user_cannot_be_named_like_a_token_user(server: RunningBroker) -> None:
    body = {"password": "x", "tags": ""}
    assert call(server, "PUT", "/api/users/oauth2:hare", GUEST, body)[0] == 400
