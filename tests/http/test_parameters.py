"""Parameters, limits and the cluster's name over HTTP, in RabbitMQ's words."""

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason

FAILED = "Validation failed\n\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def test_a_parameter_is_set_shown_and_deleted(server: RunningBroker) -> None:
    path = "/api/parameters/federation-upstream/%2F/u"
    shown = {
        "value": {"uri": "amqp://x"},
        "vhost": "/",
        "component": "federation-upstream",
        "name": "u",
    }
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "PUT", path, {"value": {"uri": "amqp://x"}}) == (201, None)
    assert ask(server, "PUT", path, {"value": {"uri": "amqp://x"}}) == (204, None)
    assert ask(server, "GET", path) == (200, shown)
    for listed in ("", "/federation-upstream", "/federation-upstream/%2F"):
        assert ask(server, "GET", f"/api/parameters{listed}") == (200, [shown])
    assert ask(server, "GET", "/api/parameters/else") == (200, [])
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "DELETE", path)[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("nope/%2F/p", {"value": {}}, FAILED + "component nope not found\n"),
        ("policy/%2F/p", {"value": {}}, "policies may not be set using this method"),
        ("federation-upstream/%2F/p", {}, "[{key_missing,value}]"),
        (
            "operator_policy/%2F/o2",
            {"value": {"pattern": "a", "definition": {"max-length": 5}}},
            FAILED + 'Key "priority" not found in o2\n',
        ),
        (
            "vhost-limits/%2F/limits",
            {"value": {"nope": 5}},
            FAILED + 'Unrecognised terms [{<<"nope">>,5}] in limits\n',
        ),
    ],
)
def test_invalid_parameter_is_refused_with_a_reason(
    server: RunningBroker, path: str, body: object, text: str
) -> None:
    assert reason(ask(server, "PUT", f"/api/parameters/{path}", body)) == (400, text)


def test_operator_policies_and_limits_are_parameters_too(server: RunningBroker) -> None:
    value = {"pattern": "a", "definition": {"max-length": 5}, "priority": 0, "apply-to": "all"}
    assert ask(server, "PUT", "/api/parameters/operator_policy/%2F/o", {"value": value})[0] == 201
    assert ask(server, "GET", "/api/operator-policies/%2F/o")[1]["definition"] == {"max-length": 5}
    limits = {"max-queues": 99}
    assert (
        ask(server, "PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": limits})[0] == 201
    )
    assert ask(server, "GET", "/api/vhost-limits") == (200, [{"vhost": "/", "value": limits}])
    found = ask(server, "GET", "/api/parameters")[1]
    assert [(row["component"], row["name"]) for row in found] == [
        ("operator_policy", "o"),
        ("vhost-limits", "limits"),
    ]
    assert ask(server, "DELETE", "/api/parameters/operator_policy/%2F/o")[0] == 204
    assert ask(server, "DELETE", "/api/parameters/vhost-limits/%2F/limits")[0] == 204
    assert ask(server, "GET", "/api/parameters") == (200, [])


def test_global_parameter_is_set_read_and_deleted(server: RunningBroker) -> None:
    path = "/api/global-parameters/g"
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "PUT", path, {"value": {"a": 1}}) == (201, None)
    assert ask(server, "PUT", path, {"value": 5}) == (204, None)
    assert ask(server, "GET", path) == (200, {"name": "g", "value": 5})
    assert ask(server, "GET", "/api/global-parameters") == (200, [{"name": "g", "value": 5}])
    assert reason(ask(server, "PUT", path, {})) == (400, "[{key_missing,value}]")
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "DELETE", path)[0] == 404


def test_cluster_name_can_be_read_and_set(server: RunningBroker) -> None:
    assert ask(server, "GET", "/api/cluster-name") == (200, {"name": "test"})
    assert ask(server, "PUT", "/api/cluster-name", {"name": "hares"}) == (204, None)
    assert ask(server, "GET", "/api/cluster-name") == (200, {"name": "hares"})
    assert reason(ask(server, "PUT", "/api/cluster-name", {})) == (400, "[{key_missing,name}]")
    assert ask(server, "PUT", "/api/cluster-name", {"name": 5})[0] == 400
    parameter = {"name": "cluster_name", "value": "hares"}
    assert ask(server, "GET", "/api/global-parameters/cluster_name") == (200, parameter)
    assert ask(server, "DELETE", "/api/global-parameters/cluster_name") == (204, None)


def test_limits_of_a_vhost(server: RunningBroker) -> None:
    path = "/api/vhost-limits/%2F/max-queues"
    assert ask(server, "PUT", path, {"value": 2}) == (204, None)
    assert ask(server, "GET", "/api/vhost-limits/%2F") == (
        200,
        [{"vhost": "/", "value": {"max-queues": 2}}],
    )
    text = FAILED + 'max-queues should be a number, actually was <<"x">>\n'
    assert reason(ask(server, "PUT", path, {"value": "x"})) == (400, text)
    text = FAILED + 'Unrecognised terms [{<<"nope">>,5}] in limits\n'
    assert reason(ask(server, "PUT", "/api/vhost-limits/%2F/nope", {"value": 5})) == (400, text)
    assert ask(server, "PUT", "/api/vhost-limits/none/max-queues", {"value": 5})[0] == 404
    assert ask(server, "GET", "/api/vhost-limits/none")[0] == 404
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("one")
    channel.queue_declare("two")
    channel.queue_declare("two")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("three")
    assert closed.value.reply_code == 406
    assert closed.value.reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'three': "
        "queue limit in vhost '/' (2) is reached"
    )
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "GET", "/api/vhost-limits") == (200, [])
    connection.channel().queue_declare("three")
    connection.close()


def test_limits_of_a_user(server: RunningBroker) -> None:
    path = "/api/user-limits/guest/max-channels"
    assert ask(server, "PUT", path, {"value": 500}) == (204, None)
    shown = [{"user": "guest", "value": {"max-channels": 500}}]
    assert ask(server, "GET", "/api/user-limits") == (200, shown)
    assert ask(server, "GET", "/api/user-limits/guest") == (200, shown)
    text = 'max-channels should be a number, actually was <<"x">>'
    assert reason(ask(server, "PUT", path, {"value": "x"})) == (400, text)
    text = 'Unrecognised terms [{<<"nope">>,5}] in user-limits'
    assert reason(ask(server, "PUT", "/api/user-limits/guest/nope", {"value": 5})) == (400, text)
    assert ask(server, "GET", "/api/user-limits/none")[0] == 404
    assert ask(server, "PUT", "/api/user-limits/none/max-channels", {"value": 5})[0] == 400
    assert ask(server, "DELETE", path) == (204, None)
    assert ask(server, "GET", "/api/user-limits") == (200, [])
