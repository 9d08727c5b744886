"""Policies over HTTP: status codes, RabbitMQ's texts, and the effects for AMQP clients."""

from collections.abc import Iterator

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason

ROOTS = pytest.mark.parametrize("root", ["/api/policies", "/api/operator-policies"])
FAILED = "Validation failed\n\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@ROOTS
def test_policy_is_created_changed_shown_and_deleted(server: RunningBroker, root: str) -> None:
    path = f"{root}/%2F/p"
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "DELETE", path)[0] == 404
    body = {"pattern": "^never", "definition": {"max-length": 5}}
    assert ask(server, "PUT", path, body) == (201, None)
    assert ask(server, "PUT", path, body) == (204, None)
    assert ask(server, "PUT", path, {**body, "priority": 3, "apply-to": "queues"}) == (204, None)
    shown = {
        "vhost": "/",
        "name": "p",
        "pattern": "^never",
        "apply-to": "queues",
        "definition": {"max-length": 5},
        "priority": 3,
    }
    assert ask(server, "GET", path) == (200, shown)
    assert ask(server, "GET", root) == (200, [shown])
    assert ask(server, "GET", f"{root}/%2F") == (200, [shown])
    assert ask(server, "GET", f"{root}/none")[0] == 404
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "GET", root) == (200, [])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"not json", "not_json"),
        (b"[]", "not_json"),
        ({"pattern": "a"}, "[{key_missing,definition}]"),
        ({"definition": {"max-length": 1}}, "[{key_missing,pattern}]"),
        ({"pattern": "a", "definition": {}}, FAILED + "no policy provided\n"),
        (
            {"pattern": "a", "definition": {"nope": 1}},
            FAILED + '[{<<"nope">>,1}] are not recognised policy settings\n',
        ),
        (
            {"pattern": "a", "definition": {"max-length": -1}},
            FAILED + "-1 is not a valid maximum length\n",
        ),
        (
            {"pattern": 5, "definition": {"max-length": 1}},
            FAILED + "pattern should be a binary but was 5\n",
        ),
        (
            {"pattern": "a", "definition": {"max-length": 1}, "priority": "x"},
            FAILED + 'priority should be a number, actually was <<"x">>\n',
        ),
        (
            {"pattern": "a", "definition": {"max-length": 1}, "apply-to": "x"},
            FAILED + "apply-to 'x' unrecognised; should be one of: 'queues', 'classic_queues', "
            " 'quorum_queues', 'streams', 'exchanges', or 'all'\n",
        ),
        (
            {"pattern": "a", "definition": 5},
            FAILED + "definition must be a dictionary: 5\n",
        ),
        (
            {"pattern": "a", "definition": {"max-length": 1 << 70}},
            None,
        ),
    ],
)
def test_invalid_policy_is_refused_with_rabbitmqs_text(
    server: RunningBroker, body: object, text: str | None
) -> None:
    answer = ask(server, "PUT", "/api/policies/%2F/bad", body)
    assert answer[0] == 400
    assert text is None or reason(answer) == (400, text)
    assert ask(server, "GET", "/api/policies/%2F/bad")[0] == 404


def test_invalid_pattern_is_refused(server: RunningBroker) -> None:
    body = {"pattern": "(", "definition": {"max-length": 1}}
    status, text = reason(ask(server, "PUT", "/api/policies/%2F/bad", body))
    assert status == 400
    assert text.startswith(FAILED + "pattern should be regular expression but is invalid: ")


def test_unknown_vhost_is_a_404(server: RunningBroker) -> None:
    body = {"pattern": "", "definition": {"max-length": 1}}
    missing = {"error": "not_found", "reason": "vhost_not_found"}
    assert ask(server, "PUT", "/api/policies/none/p", body) == (404, missing)
    for method, path in (("GET", ""), ("GET", "/p"), ("DELETE", "/p")):
        assert ask(server, method, f"/api/policies/none{path}")[0] == 404


def test_administrators_govern_vhosts_that_they_may_not_enter(server: RunningBroker) -> None:
    document = {"vhosts": [{"name": "closed"}]}
    assert ask(server, "POST", "/api/definitions", document)[0] == 204
    body = {"pattern": "", "definition": {"max-length": 1}}
    assert ask(server, "PUT", "/api/policies/closed/p", body)[0] == 201
    maker = {"name": "maker", "password": "pw", "tags": "policymaker"}
    assert ask(server, "POST", "/api/definitions", {"users": [maker]})[0] == 204
    assert ask(server, "GET", "/api/policies/closed/p", login="maker:pw")[0] == 401
    assert ask(server, "GET", "/api/policies", login="maker:pw") == (200, [])


def test_operator_policies_cannot_set_keys_of_user_policies(server: RunningBroker) -> None:
    body = {"pattern": "", "definition": {"dead-letter-exchange": "x"}}
    text = '[{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings\n'
    answer = ask(server, "PUT", "/api/operator-policies/%2F/o", body)
    assert reason(answer) == (400, FAILED + text)


def test_a_policy_is_in_force_when_its_answer_comes(server: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("forced")
    for number in range(10):
        channel.basic_publish("", "forced", str(number).encode())
    user = {"pattern": "^forced$", "definition": {"max-length": 5, "message-ttl": 60000}}
    operator = {"pattern": "^forced$", "definition": {"max-length": 3, "expires": 60000}}
    assert ask(server, "PUT", "/api/policies/%2F/cut", user)[0] == 201
    assert channel.queue_declare("forced", passive=True).method.message_count == 5
    assert ask(server, "PUT", "/api/operator-policies/%2F/cut2", operator)[0] == 201
    assert channel.queue_declare("forced", passive=True).method.message_count == 3
    _, queue = ask(server, "GET", "/api/queues/%2F/forced")
    assert (queue["policy"], queue["operator_policy"]) == ("cut", "cut2")
    assert queue["effective_policy_definition"] == {
        "expires": 60000,
        "max-length": 3,
        "message-ttl": 60000,
    }
    assert ask(server, "DELETE", "/api/policies/%2F/cut")[0] == 204
    assert ask(server, "DELETE", "/api/operator-policies/%2F/cut2")[0] == 204
    _, queue = ask(server, "GET", "/api/queues/%2F/forced")
    assert (queue["policy"], queue["effective_policy_definition"]) == (None, {})
    connection.close()


def test_pattern_with_catastrophic_backtracking_does_no_harm(server: RunningBroker) -> None:
    body = {"pattern": "^(a+)+$", "definition": {"max-length": 1}}
    assert ask(server, "PUT", "/api/policies/%2F/explosive", body)[0] == 201
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    connection.channel().queue_declare("a" * 200 + "!")
    connection.close()
    assert ask(server, "DELETE", "/api/policies/%2F/explosive")[0] == 204
