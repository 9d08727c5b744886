"""Keys and types that clients of RabbitMQ's API rely on.

`REQUIRED` has the keys without which the successor of rabbitmqadmin cannot decode an answer.
`SHAPES` has the keys of RabbitMQ's answers, without those that only Erlang has.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.testing.broker import broker
from tests.http.management import Api, connected, part

RATE = {"rate": float}
CHURN = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
OBJECTS = ("connections", "channels", "queues", "exchanges", "consumers")
REQUIRED: dict[str, dict[str, Any]] = {
    "overview": {
        "cluster_name": str,
        "node": str,
        "erlang_version": str,
        "erlang_full_version": str,
        "rabbitmq_version": str,
        "product_name": str,
        "product_version": str,
        "statistics_db_event_queue": int,
        "churn_rates": dict.fromkeys(CHURN, int),
        "queue_totals": {"messages": int, "messages_details": RATE},
        "object_totals": dict.fromkeys(OBJECTS, int),
        "message_stats": {},
        "listeners": [{"node": str, "protocol": str, "port": int, "interface": str}],
    },
    "nodes": {
        "name": str,
        "type": str,
        "uptime": int,
        "run_queue": int,
        "processors": int,
        "os_pid": str,
        "fd_total": int,
        "proc_total": int,
        "mem_used": int,
        "mem_limit": int,
        "mem_alarm": bool,
        "disk_free_limit": int,
        "disk_free_alarm": bool,
        "rates_mode": str,
        "enabled_plugins": [str],
        "being_drained": bool,
    },
    "queues": {
        "name": str,
        "vhost": str,
        "type": str,
        "durable": bool,
        "auto_delete": bool,
        "exclusive": bool,
        "arguments": {},
        "messages": int,
        "messages_ready": int,
        "messages_unacknowledged": int,
        "consumers": int,
        "state": str,
        "node": str,
        "memory": int,
        "effective_policy_definition": {},
    },
    "exchanges": {
        "name": str,
        "vhost": str,
        "type": str,
        "durable": bool,
        "auto_delete": bool,
        "internal": bool,
        "arguments": {},
    },
    "bindings": {
        "vhost": str,
        "source": str,
        "destination": str,
        "destination_type": str,
        "routing_key": str,
        "arguments": {},
        "properties_key": str,
    },
    "connections": {
        "name": str,
        "node": str,
        "protocol": str,
        "user": str,
        "connected_at": int,
        "client_properties": {},
        "state": str,
        "peer_host": str,
        "peer_port": int,
        "channels": int,
        "channel_max": int,
        "vhost": str,
    },
    "channels": {
        "number": int,
        "name": str,
        "vhost": str,
        "state": str,
        "consumer_count": int,
        "confirm": bool,
        "prefetch_count": int,
        "messages_unacknowledged": int,
        "messages_unconfirmed": int,
        "connection_details": {"name": str, "peer_host": str, "peer_port": int},
    },
    "consumers": {
        "consumer_tag": str,
        "active": bool,
        "ack_required": bool,
        "prefetch_count": int,
        "exclusive": bool,
        "arguments": {},
        "consumer_timeout": int,
        "queue": {"name": str, "vhost": str},
        "channel_details": {},
    },
    "users": {"name": str, "tags": [str], "password_hash": str},
    "whoami": {"name": str, "tags": [str]},
    "permissions": {"user": str, "vhost": str, "configure": str, "write": str, "read": str},
    "policies": {
        "name": str,
        "vhost": str,
        "pattern": str,
        "apply-to": str,
        "priority": int,
        "definition": {},
    },
    "parameters/shovel": {"name": str, "vhost": str, "component": str, "value": {}},
    "feature-flags": {
        "name": str,
        "state": str,
        "desc": str,
        "doc_url": str,
        "stability": str,
        "provided_by": str,
    },
    "vhosts": {"name": str, "messages": int, "tracing": bool, "cluster_state": {}},
}
COUNTS = {
    "queues": "publish deliver deliver_no_ack get get_no_ack get_empty ack redeliver deliver_get",
    "exchanges": "publish_in publish_out",
    "channels": "publish confirm return_unroutable drop_unroutable deliver deliver_no_ack get "
    "get_no_ack get_empty ack redeliver deliver_get",
}
COUNTS["overview"] = COUNTS["vhosts"] = COUNTS["channels"]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """Start a broker with one object of each kind."""
    with broker(http=True) as url, connected(url) as connection:
        api = Api(url)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.basic_consume("q", lambda *_: None)
        policy = {"pattern": "^q", "definition": {"max-length": 5}, "apply-to": "queues"}
        api.put("policies/%2F/p", policy)
        shovel = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
        api.put("parameters/shovel/%2F/s", {"value": shovel})
        yield api


def items(found: Any) -> list[Any]:
    assert found, "there is one of each"
    return found if isinstance(found, list) else [found]


def check(shape: Any, value: Any, where: str) -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        for key, below in shape.items():
            assert key in value, f"{where}.{key} is missing"
            check(below, value[key], f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for one in value:
            check(shape[0], one, f"{where}[]")
    else:
        assert type(value) is shape, f"{where} is {value!r}"


@pytest.mark.parametrize("path", REQUIRED)
def test_required_keys_are_there_with_their_types(api: Api, path: str) -> None:
    for item in items(api.get(path)):
        check(REQUIRED[path], item, path)


@pytest.mark.parametrize("path", COUNTS)
def test_all_counts_are_there_from_the_start_with_their_rates(api: Api, path: str) -> None:
    for item in items(api.get(path)):
        for name in COUNTS[path].split():
            assert type(item["message_stats"][name]) is int
            check(RATE, item["message_stats"][f"{name}_details"], name)


def test_one_object_has_all_that_lists_have(api: Api) -> None:
    for path in ("queues/%2F", "exchanges/%2F", "nodes", "channels", "connections"):
        for item in api.get(path):
            name = part(item["name"] or "amq.default")
            assert item.keys() <= api.get(f"{path}/{name}").keys()


def test_errors_have_rabbitmqs_form(api: Api) -> None:
    for path, status, body in (
        ("queues/%2F/none", 404, {"error": "Object Not Found", "reason": "Not Found"}),
        ("nonesuch", 404, {"error": "Object Not Found", "reason": "Not Found"}),
        ("queues/none", 404, {"error": "Object Not Found", "reason": "Not Found"}),
    ):
        answer = api.ask("GET", path)
        assert (answer.status, answer.json) == (status, body)
    assert api.ask("GET", "rebalance/queues").status == 405
