"""Parameters, limits and the cluster's name over HTTP, in RabbitMQ's words."""

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from leveret.testing.broker import BrokerUrl, broker
from tests.http.asking import ask, reason

FAILED = "Validation failed\n\n"


@pytest.fixture(scope="module")
def url() -> Iterator[BrokerUrl]:
    with broker(http=True) as url:
        yield url


def test_a_parameter_is_set_shown_and_deleted(url: BrokerUrl) -> None:
    path = "/api/parameters/federation-upstream/%2F/u"
    shown = {
        "value": {"uri": "amqp://x"},
        "vhost": "/",
        "component": "federation-upstream",
        "name": "u",
    }
    assert ask(url, "GET", path)[0] == 404
    assert ask(url, "PUT", path, {"value": {"uri": "amqp://x"}}) == (201, None)
    assert ask(url, "PUT", path, {"value": {"uri": "amqp://x"}}) == (204, None)
    assert ask(url, "GET", path) == (200, shown)
    for listed in ("", "/federation-upstream", "/federation-upstream/%2F"):
        assert ask(url, "GET", f"/api/parameters{listed}") == (200, [shown])
    assert ask(url, "GET", "/api/parameters/else") == (200, [])
    assert ask(url, "DELETE", path) == (204, None)
    assert ask(url, "DELETE", path)[0] == 404


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
    url: BrokerUrl, path: str, body: object, text: str
) -> None:
    assert reason(ask(url, "PUT", f"/api/parameters/{path}", body)) == (400, text)


def test_operator_policies_and_limits_are_parameters_too(url: BrokerUrl) -> None:
    value = {"pattern": "a", "definition": {"max-length": 5}, "priority": 0, "apply-to": "all"}
    assert ask(url, "PUT", "/api/parameters/operator_policy/%2F/o", {"value": value})[0] == 201
    assert ask(url, "GET", "/api/operator-policies/%2F/o")[1]["definition"] == {"max-length": 5}
    limits = {"max-queues": 99}
    assert ask(url, "PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": limits})[0] == 201
    assert ask(url, "GET", "/api/vhost-limits") == (200, [{"vhost": "/", "value": limits}])
    found = ask(url, "GET", "/api/parameters")[1]
    assert [(row["component"], row["name"]) for row in found] == [
        ("operator_policy", "o"),
        ("vhost-limits", "limits"),
    ]
    assert ask(url, "DELETE", "/api/parameters/operator_policy/%2F/o")[0] == 204
    assert ask(url, "DELETE", "/api/parameters/vhost-limits/%2F/limits")[0] == 204
    assert ask(url, "GET", "/api/parameters") == (200, [])


def test_global_parameters(url: BrokerUrl) -> None:
    path = "/api/global-parameters/g"
    assert ask(url, "GET", path)[0] == 404
    assert ask(url, "PUT", path, {"value": {"a": 1}}) == (201, None)
    assert ask(url, "PUT", path, {"value": 5}) == (204, None)
    assert ask(url, "GET", path) == (200, {"name": "g", "value": 5})
    assert ask(url, "GET", "/api/global-parameters") == (200, [{"name": "g", "value": 5}])
    assert reason(ask(url, "PUT", path, {})) == (400, "[{key_missing,value}]")
    assert ask(url, "DELETE", path) == (204, None)
    assert ask(url, "DELETE", path)[0] == 404


def test_cluster_name_can_be_read_and_set(url: BrokerUrl) -> None:
    assert ask(url, "GET", "/api/cluster-name") == (200, {"name": "test"})
    assert ask(url, "PUT", "/api/cluster-name", {"name": "hares"}) == (204, None)
    assert ask(url, "GET", "/api/cluster-name") == (200, {"name": "hares"})
    assert reason(ask(url, "PUT", "/api/cluster-name", {})) == (400, "[{key_missing,name}]")
    assert ask(url, "PUT", "/api/cluster-name", {"name": 5})[0] == 400
    parameter = {"name": "cluster_name", "value": "hares"}
    assert ask(url, "GET", "/api/global-parameters/cluster_name") == (200, parameter)
    assert ask(url, "DELETE", "/api/global-parameters/cluster_name") == (204, None)


def test_limits_of_a_vhost(url: BrokerUrl) -> None:
    path = "/api/vhost-limits/%2F/max-queues"
    assert ask(url, "PUT", path, {"value": 2}) == (204, None)
    assert ask(url, "GET", "/api/vhost-limits/%2F") == (
        200,
        [{"vhost": "/", "value": {"max-queues": 2}}],
    )
    text = FAILED + 'max-queues should be a number, actually was <<"x">>\n'
    assert reason(ask(url, "PUT", path, {"value": "x"})) == (400, text)
    text = FAILED + 'Unrecognised terms [{<<"nope">>,5}] in limits\n'
    assert reason(ask(url, "PUT", "/api/vhost-limits/%2F/nope", {"value": 5})) == (400, text)
    assert ask(url, "PUT", "/api/vhost-limits/none/max-queues", {"value": 5})[0] == 404
    assert ask(url, "GET", "/api/vhost-limits/none")[0] == 404
    connection = pika.BlockingConnection(pika.URLParameters(url))
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
    assert ask(url, "DELETE", path) == (204, None)
    assert ask(url, "DELETE", path) == (204, None)
    assert ask(url, "GET", "/api/vhost-limits") == (200, [])
    connection.channel().queue_declare("three")
    connection.close()


def test_limits_of_a_user(url: BrokerUrl) -> None:
    path = "/api/user-limits/guest/max-channels"
    assert ask(url, "PUT", path, {"value": 500}) == (204, None)
    shown = [{"user": "guest", "value": {"max-channels": 500}}]
    assert ask(url, "GET", "/api/user-limits") == (200, shown)
    assert ask(url, "GET", "/api/user-limits/guest") == (200, shown)
    text = 'max-channels should be a number, actually was <<"x">>'
    assert reason(ask(url, "PUT", path, {"value": "x"})) == (400, text)
    text = 'Unrecognised terms [{<<"nope">>,5}] in user-limits'
    assert reason(ask(url, "PUT", "/api/user-limits/guest/nope", {"value": 5})) == (400, text)
    assert ask(url, "GET", "/api/user-limits/none")[0] == 404
    assert ask(url, "PUT", "/api/user-limits/none/max-channels", {"value": 5})[0] == 400
    assert ask(url, "DELETE", path) == (204, None)
    assert ask(url, "GET", "/api/user-limits") == (200, [])
