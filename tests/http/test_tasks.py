"""Tasks over HTTP: move, copy, delete, redrive; limits, rates, cancelling, permissions."""

import http.client
import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker

WAIT_S = 60.0


class Client:
    """One channel, and requests over HTTP."""

    def __init__(self, server: RunningBroker) -> None:
        self.server = server
        self.connection = pika.BlockingConnection(pika.URLParameters(server.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def ask(
        self, method: str, path: str, body: object = None, login: str = "guest:guest"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.server.host, self.server.http_port, timeout=60)
        headers = {"Authorization": "Basic " + b64encode(login.encode()).decode()}
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text) if text else None

    def start(self, kind: str, queue: str, **fields: object) -> Any:
        status, task = self.ask(
            "POST", "/api/tasks", {"kind": kind, "vhost": "/", "queue": queue, **fields}
        )
        assert status == 201, task
        return task

    def finished(self, task: Any) -> Any:
        return self.when(task, lambda found: found["state"] != "running")

    def when(self, task: Any, is_so: Callable[[Any], bool]) -> Any:
        until_s = time.monotonic() + WAIT_S
        found: Any = None
        while time.monotonic() < until_s:
            _, found = self.ask("GET", f"/api/tasks/{task['id']}")
            if is_so(found):
                return found
            time.sleep(0.01)
        raise AssertionError(f"not in time: {found}")

    def declare(self, name: str, **arguments: object) -> None:
        self.channel.queue_declare(name, durable=True, arguments=arguments)

    def publish(self, queue: str, *bodies: str, **properties: Any) -> None:
        made = pika.BasicProperties(delivery_mode=2, **properties)
        for body in bodies:
            self.channel.basic_publish("", queue, body.encode(), made)

    def bodies(self, queue: str) -> list[str]:
        """Take all messages and return their bodies."""
        found: list[str] = []
        while True:
            frame, _, body = self.channel.basic_get(queue, auto_ack=True)
            if frame is None:
                return found
            found.append(body.decode())

    def ids(self, queue: str) -> list[str]:
        """Return the ids of all messages, in order."""
        node = self.server.node
        held = node.broker.vhost("/").queues[queue]
        return [str((held.ledger.id << 40) | m.seq) for m in held.ready.messages()]


@pytest.fixture
def client() -> Iterator[Client]:
    with broker(http=True) as server:
        client = Client(server)
        yield client
        client.connection.close()


def test_move_keeps_order_address_and_properties(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.publish("a", *map(str, range(1000)), message_id="m", headers={"k": 1})
    task = client.start("move", "a", to={"vhost": "/", "queue": "b"})
    found = client.finished(task)
    assert (found["state"], found["done"], found["total"], found["error"]) == (
        "done", 1000, 1000, None,
    )  # fmt: skip
    assert found["source"] == {"vhost": "/", "queue": "a"}
    assert found["target"] == {"vhost": "/", "queue": "b"}
    assert found["user"] == "guest"
    assert found["ended_at_ms"] >= found["started_at_ms"]
    frame, properties, body = client.channel.basic_get("b", auto_ack=True)
    assert frame is not None and properties is not None
    assert (frame.exchange, frame.routing_key, frame.redelivered) == ("", "a", False)
    assert (properties.message_id, properties.headers, properties.delivery_mode) == (
        "m",
        {"k": 1},
        2,
    )
    assert [body.decode(), *client.bodies("b")] == [str(n) for n in range(1000)]
    assert client.bodies("a") == []


def test_selected_messages_are_moved_and_those_in_flight_are_skipped(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.publish("a", "0", "1", "2", "3", "4", "5")
    ids = client.ids("a")
    held, _, _ = client.channel.basic_get("a")
    client.channel.basic_get("a", auto_ack=True)
    task = client.start(
        "move", "a", ids=[ids[0], ids[1], ids[3], ids[5]], to={"vhost": "/", "queue": "b"}
    )
    found = client.finished(task)
    assert (found["done"], found["skipped"]) == (2, {"unacked": 1, "gone": 1})
    client.channel.basic_nack(held.delivery_tag, requeue=True)
    assert client.bodies("b") == ["3", "5"]
    assert client.bodies("a") == ["0", "2", "4"]


def test_filter_selects_messages(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    for number in range(3000):
        client.channel.basic_publish(
            "", "a", str(number).encode(), pika.BasicProperties(headers={"even": number % 2 == 0})
        )
    chosen = {"headers": {"even": True}}
    task = client.start("copy", "a", filter=chosen, to={"vhost": "/", "queue": "b"}, limit=700)
    found = client.finished(task)
    assert (found["done"], found["total"]) == (700, 3000)
    assert client.bodies("b") == [str(n) for n in range(0, 1400, 2)]
    found = client.finished(client.start("delete", "a", filter=chosen))
    assert (found["done"], found["scanned"]) == (1500, 3000)
    assert client.bodies("a") == [str(n) for n in range(1, 3000, 2)]


def test_dry_run_reports_targets_and_changes_nothing(client: Client) -> None:
    client.declare("dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name in ("w1", "w2", "w3"):
        client.declare(name, **dead)
        client.publish(name, name, name)
        while client.channel.basic_get(name)[0] is not None:
            pass
        client.channel.basic_nack(0, multiple=True, requeue=False)
    client.publish("dead", "never died")
    client.channel.queue_delete("w3")
    body = {"kind": "redrive", "vhost": "/", "queue": "dead", "dry_run": True}
    status, trial = client.ask("POST", "/api/tasks", body)
    assert status == 200
    assert trial == {
        "matched": 7,
        "targets": [
            {"vhost": "/", "queue": "w1", "messages": 2},
            {"vhost": "/", "queue": "w2", "messages": 2},
        ],
        "skipped": {"no_such_queue": 2, "no_death_record": 1},
    }
    assert client.ask("GET", "/api/tasks") == (200, [])
    found = client.finished(client.start("redrive", "dead"))
    assert (found["state"], found["done"]) == ("done", 4)
    assert found["skipped"] == trial["skipped"]
    assert client.bodies("w1") == ["w1", "w1"]
    assert sorted(client.bodies("dead")) == ["never died", "w3", "w3"]


def test_redrive_keeps_attempts_if_asked(client: Client) -> None:
    client.declare("dead")
    client.declare("work", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish("work", "x")
    client.channel.basic_get("work")
    client.channel.basic_nack(0, multiple=True, requeue=False)
    client.finished(client.start("redrive", "dead", keep_attempts=True))
    _, properties, _ = client.channel.basic_get("work")
    assert properties is not None and properties.headers is not None
    assert properties.headers["x-redrive-count"] == 1
    assert properties.headers["x-death"][0]["count"] == 1
    client.channel.basic_nack(0, multiple=True, requeue=False)
    client.declare("elsewhere")
    task = client.start("redrive", "dead", to={"vhost": "/", "queue": "elsewhere"})
    assert client.finished(task)["done"] == 1
    _, properties, _ = client.channel.basic_get("elsewhere", auto_ack=True)
    assert properties is not None and properties.headers is not None
    assert properties.headers["x-redrive-count"] == 2
    assert "x-death" not in properties.headers
    assert properties.headers["x-redrive-history"][0]["count"] == 2


def test_a_rate_is_kept_and_a_task_can_be_cancelled(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.publish("a", *map(str, range(300)))
    task = client.start("move", "a", to={"vhost": "/", "queue": "b"}, rate=100)
    found = client.when(task, lambda found: found["done"] >= 20)
    assert found["state"] == "running"
    assert found["rate"] < 250
    assert client.ask("DELETE", f"/api/tasks/{task['id']}")[0] == 204
    _, found = client.ask("GET", f"/api/tasks/{task['id']}")
    assert (found["state"], found["waiting"]) == ("cancelled", None)
    moved = client.bodies("b")
    assert len(moved) == found["done"] < 300
    assert moved + client.bodies("a") == [str(n) for n in range(300)]
    assert [t["id"] for t in client.ask("GET", "/api/tasks")[1]] == [task["id"]]


@pytest.mark.parametrize("overflow", ["reject-publish", "drop-head"])
def test_a_task_waits_for_room_in_its_target(client: Client, overflow: str) -> None:
    client.declare("a")
    client.declare("b", **{"x-max-length": 10, "x-overflow": overflow})
    client.publish("a", *map(str, range(25)))
    task = client.start("move", "a", to={"vhost": "/", "queue": "b"})
    found = client.when(task, lambda found: found["waiting"])
    assert (found["done"], found["waiting"]) == (10, "queue 'b' has no room")
    taken: list[str] = []
    until_s = time.monotonic() + WAIT_S
    while len(taken) < 25 and time.monotonic() < until_s:
        taken += client.bodies("b")
    assert taken == [str(n) for n in range(25)]
    assert client.finished(task)["done"] == 25
    target = client.server.node.broker.vhost("/").queues["b"]
    assert (target.dropped, target.refused) == (0, 0)


def test_a_task_waits_while_publishers_are_blocked(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.publish("a", "1")
    alarms = client.server.node.front.alarms
    alarms.append("memory")
    task = client.start("move", "a", to={"vhost": "/", "queue": "b"})
    found = client.when(task, lambda found: found["waiting"])
    assert (found["done"], found["waiting"]) == (0, "low on memory")
    assert client.finished(client.start("delete", "a", limit=0))["state"] == "done"
    alarms.remove("memory")
    assert client.finished(task)["done"] == 1


def test_exchange_routes_moved_messages(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.declare("c")
    client.channel.exchange_declare("e", "topic")
    client.channel.queue_bind("b", "e", "b.#")
    client.channel.queue_bind("c", "e", "#.c")
    client.publish("a", "1", "2")
    to = {"vhost": "/", "exchange": "e", "routing_key": "b.c"}
    assert client.finished(client.start("move", "a", to=to, limit=1))["done"] == 1
    to = {"vhost": "/", "exchange": "e"}
    found = client.finished(client.start("move", "a", to=to))
    assert (found["done"], found["skipped"]) == (0, {"unroutable": 1})
    assert [client.bodies(name) for name in "abc"] == [["2"], ["1"], ["1"]]


def test_a_task_whose_queue_is_deleted_fails(client: Client) -> None:
    client.declare("a")
    client.declare("b")
    client.publish("a", *map(str, range(50)))
    task = client.start("move", "a", to={"vhost": "/", "queue": "b"}, rate=20)
    client.when(task, lambda found: found["done"] > 0)
    client.channel.queue_delete("a")
    found = client.finished(task)
    assert (found["state"], found["error"]) == ("failed", "queue 'a' is deleted")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"kind": "shred"}, 400),
        ({"queue": "none"}, 404),
        ({"vhost": "none"}, 401),
        ({"to": None}, 400),
        ({"to": {"vhost": "/", "queue": "none"}}, 404),
        ({"to": {"vhost": "/", "queue": "a"}}, 400),
        ({"to": {"vhost": "/"}}, 400),
        ({"to": {"vhost": "/", "exchange": "none"}}, 404),
        ({"ids": ["x"]}, 400),
        ({"ids": ["1"]}, 400),
        ({"ids": [str(1 << 63)]}, 400),
        ({"rate": 0}, 400),
        ({"limit": -1}, 400),
        ({"keep_attempts": True}, 400),
        ({"filter": {"properties": {"none": 1}}}, 400),
        ({"kind": "delete"}, 400),
        ({"queue": "stream"}, 400),
        ({"extra": 1}, 400),
    ],
)
def test_invalid_task_is_refused(client: Client, changes: dict[str, object], status: int) -> None:
    client.declare("a")
    client.declare("b")
    client.declare("stream", **{"x-queue-type": "stream"})
    body = {"kind": "move", "vhost": "/", "queue": "a", "to": {"vhost": "/", "queue": "b"}}
    found, answer = client.ask("POST", "/api/tasks", {**body, **changes})
    assert found == status, answer
    assert client.ask("GET", "/api/tasks") == (200, [])


def test_routing_keys_that_a_user_may_not_write_stay_where_they_are(client: Client) -> None:
    client.ask("PUT", "/api/users/u", {"password": "p", "tags": "management"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    client.ask("PUT", "/api/permissions/%2F/u", everything)
    mine = {"exchange": "amq.topic", "write": "^mine$", "read": ".*"}
    client.ask("PUT", "/api/topic-permissions/%2F/u", mine)
    client.declare("a")
    client.declare("b")
    client.channel.queue_bind("b", "amq.topic", "#")
    client.channel.queue_bind("a", "amq.direct", "mine")
    client.channel.queue_bind("a", "amq.direct", "yours")
    for key in ("mine", "yours"):
        client.channel.basic_publish("amq.direct", key, key.encode())
    to: dict[str, object] = {"vhost": "/", "exchange": "amq.topic"}
    body = {"kind": "copy", "vhost": "/", "queue": "a", "to": to}
    for chosen, done in ((None, 1), ("mine", 2), ("yours", 0)):
        to["routing_key"] = chosen
        status, task = client.ask("POST", "/api/tasks", body, "u:p")
        assert status == 201
        assert client.finished(task)["done"] == done
    assert client.bodies("b") == ["mine", "mine", "yours"]


def test_task_ends_when_its_user_loses_the_read_permission(client: Client) -> None:
    client.ask("PUT", "/api/users/u", {"password": "p", "tags": "management"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    client.ask("PUT", "/api/permissions/%2F/u", everything)
    client.declare("a")
    client.declare("b")
    client.publish("a", *map(str, range(50)))
    order = {"kind": "move", "vhost": "/", "queue": "a", "rate": 2.0}
    body = {**order, "to": {"vhost": "/", "queue": "b"}}
    status, task = client.ask("POST", "/api/tasks", body, "u:p")
    assert status == 201
    client.ask("DELETE", "/api/users/u")
    found = client.finished(task)
    assert (found["state"], found["error"]) == (
        "failed",
        "user 'u' may no longer read from the queue",
    )
    assert found["done"] < 50


def test_users_need_read_on_the_source_and_write_on_the_target(client: Client) -> None:
    for name in ("management-1", "management-2", "monitoring-1", "nobody"):
        tags = name.partition("-")[0] if "-" in name else ""
        client.ask("PUT", f"/api/users/{name}", {"password": "p", "tags": tags})
        grant = {"configure": "", "write": "^w", "read": "^r"}
        client.ask("PUT", f"/api/permissions/%2F/{name}", grant)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "r"}
    client.declare("r")
    client.declare("w", **dead)
    client.declare("x", **dead)
    for name in ("w", "x"):
        client.publish(name, name)
        client.channel.basic_get(name)
    client.channel.basic_nack(0, multiple=True, requeue=False)
    login = "management-1:p"

    def post(kind: str, queue: str, to: str | None = None) -> tuple[int, Any]:
        body: dict[str, object] = {"kind": kind, "vhost": "/", "queue": queue}
        if to is not None:
            body["to"] = {"vhost": "/", "queue": to}
        return client.ask("POST", "/api/tasks", body, login)

    assert post("move", "x", "w")[0] == 401
    assert post("move", "r", "x")[0] == 401
    assert post("delete", "w")[0] == 401
    assert client.ask("POST", "/api/tasks", {}, "nobody:p")[0] == 401
    status, task = post("redrive", "r")
    assert status == 201
    found = client.finished(task)
    assert (found["done"], found["skipped"]) == (1, {"not_permitted": 1})
    path = f"/api/tasks/{task['id']}"
    assert client.ask("GET", path, None, login)[0] == 200
    assert client.ask("GET", path, None, "management-2:p")[0] == 404
    assert client.ask("GET", "/api/tasks", None, "management-2:p") == (200, [])
    assert client.ask("DELETE", path, None, "management-2:p")[0] == 404
    assert client.ask("GET", path, None, "monitoring-1:p")[0] == 200
    assert client.ask("DELETE", path, None, "monitoring-1:p")[0] == 401
    assert client.ask("DELETE", path)[0] == 204
