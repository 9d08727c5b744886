"""A user with every tag but administrator changes and reads nothing in a vhost of others."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.http.app import OPERATIONS
from leveret.http.framework.operations import Access, Operation
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole

TAGS = "management,policymaker"
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
SECRET = "what only others may read"
# Other ways to write the name of the vhost, tried with the queues in it.
TRICKS = ("%74heirs", "own%2F..%2Ftheirs", "own/../theirs", "theirs%00")
# Answers that say nothing about the vhost.
HARMLESS = ("/api/health/checks/",)
NAMES = {
    "exchanges": "books",
    "policies": "rule",
    "operator-policies": "rule",
    "parameters": "up",
    "streams": "log",
}
# A body that fits every operation as far as it can.
BODY: dict[str, Any] = {
    "vhost": "theirs",
    "pattern": ".",
    "definition": {"max-length": 1},
    "value": {"uri": "amqp://other"},
    "type": "topic",
    "count": 1,
    "ackmode": "ack_requeue_false",
    "encoding": "auto",
    "routing_key": "gold",
    "payload": "x",
    "payload_encoding": "string",
    "properties": {},
    "offset": 0,
    "messages": 1,
    "runs": [[0, 10]],
    "action": "sync",
    "arguments": {},
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        for vhost in ("own", "theirs"):
            assert ask(server, "PUT", f"/api/vhosts/{vhost}")[0] == 201
        user = {"password": "low", "tags": TAGS}
        assert ask(server, "PUT", "/api/users/low", user)[0] == 201
        assert ask(server, "PUT", "/api/permissions/own/low", ALL)[0] == 201
        stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
        message = {**BODY, "payload": SECRET}
        for path, sent in (
            ("queues/theirs/gold", {}),
            ("queues/theirs/log", stream),
            ("exchanges/theirs/books", {"type": "topic"}),
            ("policies/theirs/rule", {"pattern": "^none$", "definition": {"max-length": 9}}),
            ("parameters/federation-upstream/theirs/up", {"value": {"uri": "amqp://h"}}),
        ):
            assert ask(server, "PUT", f"/api/{path}", sent)[0] == 201, path
        for key in ("gold", "log"):
            path = "/api/exchanges/theirs/amq.default/publish"
            assert ask(server, "POST", path, {**message, "routing_key": key})[0] == 200
        yield server


def path_of(operation: Operation, vhost: str) -> str:
    path = operation.path.replace("{vhost}", vhost).replace("{component}", "federation-upstream")
    path = path.replace("{source}", "books").replace("{kind}", "q").replace("{destination}", "gold")
    path = path.replace("{name}", NAMES.get(operation.path.split("/")[2], "gold"))
    return re.sub(r"\{[^}]*\}", "low" if "{user}" in path else "1", path)


def state(server: RunningBroker) -> Any:
    vhost = server.node.broker.vhosts["theirs"]
    counts = {name: queue.message_count() for name, queue in vhost.queues.items()}
    return ask(server, "GET", "/api/definitions")[1], counts


def test_nobody_reaches_into_a_vhost_of_others(server: RunningBroker) -> None:
    before = state(server)
    of_vhosts = [each for each in OPERATIONS if "{vhost}" in each.path]
    assert len(of_vhosts) > 50
    for operation in of_vhosts:
        if operation.access is Access.PUBLIC or operation.path.startswith(HARMLESS):
            continue
        is_queue = operation.path == "/api/queues/{vhost}/{name}"
        for vhost in ("theirs", *(TRICKS if is_queue else ())):
            path = path_of(operation, vhost)
            body = BODY if operation.body is not None else None
            status, found, _ = ask_whole(server, operation.method, path, body, login="low:low")
            assert 400 <= status < 500, (operation.method, path, status)
            assert SECRET.encode() not in found, (operation.method, path)
    assert state(server) == before
