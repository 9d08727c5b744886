"""Every field of the data model can be read over HTTP; docs/management.md says where.

The test reads the table of the page: each row names a field, the path of the request, and the key
in the answer. A field missing from the API, or a row missing from the page, fails here.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leveret.testing.broker import broker
from tests.http.management import Api, connected, part

PAGE = Path(__file__).parents[2] / "docs" / "management.md"
ROW = re.compile(r"^\| `(\w+)\.([\w-]+)` \| `(GET|POST) ([^`]+)` \| `([^`]+)` \|")
# How many fields each structure has, to notice a lost row.
FIELDS = {
    "Message": 18,
    "XDeath": 6,
    "Exchange": 7,
    "Binding": 5,
    "Queue": 21,
    "Consumer": 12,
    "Connection": 12,
    "Channel": 8,
}


class Row(NamedTuple):
    """One row of the table."""

    structure: str
    field: str
    method: str
    path: str
    key: str


def rows() -> list[Row]:
    found = [ROW.match(line) for line in PAGE.read_text().splitlines()]
    return [Row(*match.groups()) for match in found if match is not None]


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[Api, dict[str, str]]]:
    """Start a broker with one object of each kind, and return the names for the paths."""
    with broker(http=True) as url, connected(url) as connection:
        api = Api(url)
        channel = connection.channel()
        channel.confirm_delivery()
        arguments = {
            "x-message-ttl": 600000,
            "x-expires": 600000,
            "x-max-length": 10,
            "x-max-length-bytes": 100000,
            "x-overflow": "drop-head",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
            "x-max-priority": 9,
            "x-queue-mode": "lazy",
        }
        api.put("exchanges/%2F/x", {"type": "headers", "arguments": {"a": 1}})
        api.put("queues/%2F/q", {"durable": True, "arguments": arguments})
        quorum = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1, "x-delivery-limit": 5}
        api.put("queues/%2F/qq", {"durable": True, "arguments": quorum})
        api.put("queues/%2F/dead", {"durable": True})
        api.post("bindings/%2F/e/x/q/q", {"routing_key": "k", "arguments": {"h": "v"}})
        for name in ("q", "dead"):
            _publish(api, name)
        dying = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
        api.post("queues/%2F/q/get", dying)
        api.ask("DELETE", "queues/%2F/dead/contents")
        _publish(api, "q")
        api.post("queues/%2F/q/get", dying)
        _publish(api, "q")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("q", lambda *_: None, arguments={"x-priority": 1})
        channel.queue_declare("q", passive=True)
        (connected_,) = api.get("connections")
        (opened,) = api.get("channels")
        names = {
            "{vhost}": "%2F",
            "{exchange}": "x",
            "{queue}": "q",
            "{quorum queue}": "qq",
            "{dead letters}": "dead",
            "{connection}": part(connected_["name"]),
            "{channel}": part(opened["name"]),
        }
        yield api, names


def _publish(api: Api, queue: str) -> None:
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"a": 1},
        "delivery_mode": 2,
        "priority": 1,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "600000",
        "message_id": "m",
        "timestamp": 1,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    body = {"routing_key": queue, "payload": "x", "properties": properties}
    assert api.post("exchanges/%2F/amq.default/publish", body).json == {"routed": True}


def read(value: Any, key: str) -> Any:
    """Return the value of a key. Parts are separated by ` / `; of an array, take the first item."""
    for name in key.split(" / "):
        while isinstance(value, list):
            assert value, (key, "an empty array")
            value = value[0]
        assert name in value, (key, name, value)
        value = value[name]
    return value


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.structure}.{row.field}")
def test_field_is_readable(model: tuple[Api, dict[str, str]], row: Row) -> None:
    api, names = model
    path = row.path
    for name, value in names.items():
        path = path.replace(name, value)
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    answer = api.ask(row.method, path.removeprefix("/api/"), body if row.method == "POST" else None)
    assert answer.status == 200, (path, answer.data)
    read(answer.json, row.key)


def test_page_has_every_field() -> None:
    counted: dict[str, int] = {}
    for row in rows():
        counted[row.structure] = counted.get(row.structure, 0) + 1
    assert counted == FIELDS
