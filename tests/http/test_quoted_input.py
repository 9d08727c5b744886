"""Errors and the audit quote a limited part of what a client sent."""

from collections.abc import Iterator

import pytest

from leveret.http.framework.operations import OBJECT_BYTES_MAX
from leveret.shortened import QUOTED_CHARS_MAX
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask
from tests.http.management import Api

TEXT = "a" * 200_000
NUMBERS = [0] * 50_000
KEYS = dict.fromkeys(map(str, range(10_000)), 0)
POLICY = {"pattern": "a", "definition": {"max-length": 5}}
MESSAGE = {"routing_key": "a", "payload": "", "properties": {}}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as running:
        yield running


def deep(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [TEXT, NUMBERS, KEYS, deep(400)], ids=["a", "0", "{", "["])
@pytest.mark.parametrize("field", ["apply-to", "definition", "pattern", "priority"])
def test_fault_of_a_policy_quotes_a_part_of_the_value(
    server: RunningBroker, field: str, value: object
) -> None:
    status, found = ask(server, "PUT", "/api/policies/%2F/p", {**POLICY, field: value})
    assert status == 400
    assert len(found["reason"]) <= QUOTED_CHARS_MAX


@pytest.mark.parametrize(
    ("method", "path", "body", "end"),
    [
        ("PUT", "queues/%2F/q", {"durable": TEXT}, "'"),
        ("PUT", "queues/%2F/q", {TEXT: 1}, ""),
        ("POST", "queues/%2F/q/actions", {"action": TEXT}, "'"),
        ("POST", "exchanges/%2F/amq.topic/publish", {**MESSAGE, "payload_encoding": TEXT}, "'"),
        ("PUT", "policies/%2F/p", {**POLICY, "apply-to": TEXT}, "or 'all'\n"),
        ("PUT", "vhosts/v", {"default_queue_type": TEXT}, "is not a valid queue type"),
        ("POST", "definitions", {"queues": [{"name": TEXT, "vhost": "/"}]}, ""),
        ("POST", "definitions", {"queues": [{"vhost": "/", "x": TEXT}]}, "}"),
        ("GET", f"queues?sort={TEXT[:30_000]}", None, ""),
        ("GET", f"streams/%2F/s/batches?columns={TEXT[:30_000]}", None, ""),
    ],
)
def test_answer_is_short_and_keeps_its_end(
    server: RunningBroker, method: str, path: str, body: object, end: str
) -> None:
    answer = Api(server).ask(method, path, body)
    assert len(answer.data) <= QUOTED_CHARS_MAX + 100
    if answer.status >= 400:
        assert answer.json["reason"].endswith(end)


def test_audit_keeps_a_part_of_a_long_path(server: RunningBroker) -> None:
    name = "b" * 30_000 + "end"
    assert ask(server, "DELETE", f"/api/queues/%2F/{name}")[0] in (400, 404)
    _, events = ask(server, "GET", "/api/audit?limit=1")
    target = events[0]["target"]
    assert (len(target), target[:12], target[-3:]) == (QUOTED_CHARS_MAX, "/api/queues/", "end")


def test_body_that_describes_an_object_has_a_limit(server: RunningBroker) -> None:
    body = {"arguments": {}, "node": "a" * OBJECT_BYTES_MAX}
    status, found = ask(server, "PUT", "/api/queues/%2F/q", body)
    assert (status, found["reason"]) == (413, f"the body has more than {OBJECT_BYTES_MAX} bytes")
