"""Federation between real brokers: exchanges, queues, hops, faults, permissions and the API."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pytest

from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason
from tests.http.test_shovels import Client, wait_until

FAST = {"reconnect-delay": 0.1}


class Node(Client):
    """A broker of a federation."""

    def put_upstream(self, name: str, *others: "Node", **keys: object) -> None:
        uris = [other.server.url for other in others]
        value: dict[str, object] = {"uri": uris if len(uris) != 1 else uris[0], **FAST}
        value.update({key.replace("_", "-"): found for key, found in keys.items()})
        path = f"/api/parameters/federation-upstream/%2F/{name}"
        assert ask(self.server, "PUT", path, {"value": value})[0] in (201, 204)

    def put_policy(self, pattern: str, apply_to: str = "all", **keys: str) -> None:
        definition = {key.replace("_", "-"): found for key, found in keys.items()}
        body = {"pattern": pattern, "apply-to": apply_to, "definition": definition}
        assert ask(self.server, "PUT", "/api/policies/%2F/p", body)[0] in (201, 204)

    def federate(
        self, pattern: str, upstream: "Node", apply_to: str = "all", **keys: object
    ) -> None:
        """Federate exchanges and queues with an upstream, and wait until the link runs."""
        self.put_upstream("u", upstream, **keys)
        self.put_policy(pattern, apply_to, federation_upstream="u")
        self.wait_for_links()

    def links(self) -> list[Any]:
        found: list[Any] = ask(self.server, "GET", "/api/federation-links")[1]
        return found

    def wait_for_links(self, count: int = 1) -> None:
        """Wait until all links run."""

        def are_running() -> bool:
            states = [link["status"] for link in self.links()]
            return states == ["running"] * count

        wait_until(are_running)

    def wait_for_error(self, text: str) -> None:
        """Wait until a link has an error that contains this text."""
        wait_until(lambda: any(text in link.get("error", "") for link in self.links()))

    def queue_names(self) -> set[str]:
        return set(self.server.node.broker.vhost("/").queues)

    def has_passed_everything(self) -> bool:
        """Return True if the queues of links have no message."""
        queues = list(self.server.node.broker.vhost("/").queues.values())
        links = [queue for queue in queues if queue.name.startswith("federation")]
        return all(queue.message_count() == queue.unacked == 0 for queue in links)

    def bindings_of(self, exchange: str) -> set[str]:
        """Return the routing keys of the bindings of an exchange."""
        found = self.server.node.broker.vhost("/").exchanges.get(exchange)
        return {binding.routing_key for binding in found.bindings.values()} if found else set()


@pytest.fixture
def nodes() -> Iterator["Nodes"]:
    with ExitStack() as stack:
        yield Nodes(stack)


@pytest.fixture(scope="module")
def alone() -> Iterator[RunningBroker]:
    """A broker for requests that change nothing."""
    with broker(http=True) as server:
        yield server


@pytest.fixture
def up(nodes: "Nodes") -> Node:
    return nodes.start("up")


@pytest.fixture
def down(nodes: "Nodes") -> Node:
    return nodes.start("down")


class Nodes:
    """Starts brokers with names of their own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, name: str, **settings: Any) -> Node:
        node = Node(self._stack.enter_context(broker(http=True, node=name, **settings)))
        self._stack.callback(node.connection.close)
        return node


def test_exchange_gets_the_messages_that_it_has_bindings_for(up: Node, down: Node) -> None:
    for node in (up, down):
        node.channel.exchange_declare("news", "topic", durable=True)
    down.declare("q")
    down.channel.queue_bind("q", "news", "sport.#")
    down.federate("^news$", up, "exchanges")
    (link,) = down.links()
    assert (link["exchange"], link["upstream_exchange"], link["type"]) == (
        "news",
        "news",
        "exchange",
    )
    assert "guest" not in link["uri"] and link["uri"].startswith("amqp://127.0.0.1:")
    assert "federation: news -> down" in up.queue_names()
    assert up.bindings_of("news") == {"sport.#"}

    up.channel.basic_publish("news", "sport.chess", b"1", pika.BasicProperties(headers={"h": 1}))
    up.channel.basic_publish("news", "money", b"not this")
    wait_until(lambda: down.count("q") == 1)
    frame, properties, body = down.channel.basic_get("q", auto_ack=True)
    assert (frame.exchange, frame.routing_key, body) == ("news", "sport.chess", b"1")
    (entry,) = properties.headers["x-received-from"]
    assert (entry["cluster-name"], entry["vhost"], entry["exchange"]) == ("up", "/", "news")
    assert entry["redelivered"] is False and "guest" not in entry["uri"]
    assert properties.headers["h"] == 1

    down.declare("r")
    down.channel.queue_bind("r", "news", "money")
    down.channel.queue_bind("r", "news", "sport.#")
    wait_until(lambda: up.bindings_of("news") == {"sport.#", "money"})
    down.channel.queue_unbind("q", "news", "sport.#")
    down.channel.queue_unbind("r", "news", "money")
    wait_until(lambda: up.bindings_of("news") == {"sport.#"})
    up.channel.basic_publish("news", "sport.chess", b"2")
    assert down.bodies("r", 1) == ["2"]
    wait_until(lambda: up.count("federation: news -> down") == 0)
    assert down.links()[0]["messages"] == 2


def test_missing_upstream_exchange_is_declared_like_the_local_one(up: Node, down: Node) -> None:
    down.channel.exchange_declare("h", "headers", durable=True)
    down.declare("q")
    down.channel.queue_bind("q", "h", "", arguments={"x-match": "any", "a": 1})
    down.put_upstream("u", up, exchange="other")
    down.put_policy("^h$", federation_upstream_set="all")
    down.wait_for_links()
    found = up.server.node.broker.vhost("/").exchanges["other"]
    assert (found.kind, found.durable) == ("headers", True)
    assert "federation: other -> down:h" in up.queue_names()
    up.channel.basic_publish("other", "", b"1", pika.BasicProperties(headers={"a": 1}))
    up.channel.basic_publish("other", "", b"no", pika.BasicProperties(headers={"a": 2}))
    assert down.bodies("q", 1) == ["1"]


def test_policy_that_is_removed_ends_the_link_and_deletes_its_queue(up: Node, down: Node) -> None:
    down.channel.exchange_declare("x", "fanout")
    down.federate("^x$", up)
    exchanges = up.server.node.broker.vhost("/").exchanges
    assert "federation: x -> down A" in exchanges
    assert ask(down.server, "DELETE", "/api/policies/%2F/p")[0] == 204
    wait_until(lambda: not down.links())
    wait_until(lambda: "federation: x -> down" not in up.queue_names())
    wait_until(lambda: not [name for name in exchanges if name.startswith("federation")])
    down.put_policy("^x$", federation_upstream="u")
    down.wait_for_links()
    down.channel.exchange_delete("x")
    wait_until(lambda: not down.links())
    down.channel.exchange_declare("x", "fanout")
    down.wait_for_links()
    assert ask(down.server, "DELETE", "/api/parameters/federation-upstream/%2F/u")[0] == 204
    wait_until(lambda: not down.links())
    wait_until(lambda: "federation: x -> down" not in up.queue_names())


def test_changed_upstream_keeps_its_queue_unless_it_is_another_one(up: Node, down: Node) -> None:
    down.channel.exchange_declare("x", "fanout")
    down.federate("^x$", up)
    queue = up.server.node.broker.vhost("/").queues["federation: x -> down"]
    down.put_upstream("u", up, prefetch_count=7)
    wait_until(lambda: [int(consumer.prefetch) for consumer in queue.consumers] == [7])
    assert up.server.node.broker.vhost("/").queues["federation: x -> down"] is queue
    down.put_upstream("u", up, exchange="y")
    wait_until(lambda: up.queue_names() == {"federation: y -> down:x"})
    down.wait_for_links()


@pytest.mark.parametrize(("hops", "reached"), [(1, 1), (2, 2), (5, 2)])
def test_message_in_a_ring_goes_as_far_as_max_hops_and_never_comes_back(
    nodes: Nodes, hops: int, reached: int
) -> None:
    ring = [nodes.start(name) for name in ("a", "b", "c")]
    for number, node in enumerate(ring):
        node.channel.exchange_declare("x", "fanout", durable=True)
        node.declare("q")
        node.channel.queue_bind("q", "x", "")
        node.put_upstream("before", ring[number - 1], max_hops=hops)
    for node in ring:
        node.put_policy("^x$", "exchanges", federation_upstream="before")
    for node in ring:
        node.wait_for_links()
    first, *others = ring
    first.channel.basic_publish("x", "", b"1")
    for node in (first, *others[:reached]):
        assert node.bodies("q", 1) == ["1"]
    for node in ring:
        wait_until(node.has_passed_everything)
    assert [node.count("q") for node in ring] == [0, 0, 0]


def test_queue_fetches_messages_while_its_consumers_are_idle(up: Node, down: Node) -> None:
    for node in (up, down):
        node.declare("jobs")
    up.publish("jobs", *map(str, range(10)), message_id="m", headers={"CC": ["none"]})
    down.federate("^jobs$", up, "queues", prefetch_count=3)
    (link,) = down.links()
    assert (link["queue"], link["upstream_queue"]) == ("jobs", "jobs")
    assert link["consumer_tag"] == "federation-link-u"
    assert (up.count("jobs"), down.count("jobs")) == (10, 0), "nobody consumes, so nothing moves"
    found: list[Any] = []
    for frame, properties, body in down.channel.consume("jobs", inactivity_timeout=60):
        assert frame is not None and properties is not None and body is not None
        found.append((body.decode(), properties.headers))
        down.channel.basic_ack(frame.delivery_tag)
        if len(found) == 10:
            break
    assert sorted(body for body, _ in found) == [str(number) for number in range(10)]
    headers = found[0][1]
    (entry,) = headers["x-received-from"]
    assert (entry["queue"], entry["visit-count"]) == ("jobs", 1)
    assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == ("", "jobs")
    assert headers["x-original-cc"] == ["none"] and "CC" not in headers
    down.channel.cancel()
    queue = up.server.node.broker.vhost("/").queues["jobs"]
    wait_until(lambda: not queue.consumers and queue.unacked == 0)
    up.publish("jobs", "stays")
    assert (up.count("jobs"), down.count("jobs")) == (1, 0)


def test_upstream_serves_its_own_consumers_first(up: Node, down: Node) -> None:
    for node in (up, down):
        node.declare("jobs")
    down.put_upstream("u", up)
    down.put_policy("^jobs$", federation_upstream_pattern="^u$")
    down.wait_for_links()
    down.channel.basic_consume("jobs", lambda *_: None)
    queue = up.server.node.broker.vhost("/").queues["jobs"]
    wait_until(lambda: [int(consumer.priority) for consumer in queue.consumers] == [-1])
    up.channel.basic_consume("jobs", lambda *_: None)
    up.publish("jobs", *map(str, range(20)))
    wait_until(lambda: queue.unacked == 20)
    assert down.links()[0]["messages"] == 0


def test_upstream_that_restarts_loses_nothing(down: Node, tmp_path: Any) -> None:
    down.channel.exchange_declare("x", "fanout", durable=True)
    down.declare("q")
    down.channel.queue_bind("q", "x", "")
    port = 0
    for round in range(3):
        with broker(http=True, node="up", disk=Disk(tmp_path), amqp_port=port) as server:
            up = Node(server)
            if not port:
                port = server.port
                down.federate("^x$", up)
            made = pika.BasicProperties(delivery_mode=2)
            for number in range(200):
                up.channel.basic_publish("x", "", f"{round}.{number}".encode(), made)
            up.connection.close()
        wait_until(lambda: down.links()[0]["status"] == "error")
    with broker(http=True, node="up", disk=Disk(tmp_path), amqp_port=port):
        wanted = {f"{round}.{number}" for round in range(3) for number in range(200)}
        got: set[str] = set()

        def is_complete() -> bool:
            frame, _, body = down.channel.basic_get("q", auto_ack=True)
            if frame is not None:
                got.add(body.decode())
            return got == wanted

        wait_until(is_complete, pause_s=0.0)


def test_bindings_removed_while_the_upstream_is_away_are_removed_there(
    down: Node, tmp_path: Any
) -> None:
    down.channel.exchange_declare("x", "direct", durable=True)
    down.declare("q")
    down.channel.queue_bind("q", "x", "old")
    with broker(http=True, node="up", disk=Disk(tmp_path)) as server:
        up, port = Node(server), server.port
        down.federate("^x$", up)
        assert up.bindings_of("x") == {"old"}
        up.connection.close()
    wait_until(lambda: down.links()[0]["status"] == "error")
    down.channel.queue_unbind("q", "x", "old")
    down.channel.queue_bind("q", "x", "new")
    with broker(http=True, node="up", disk=Disk(tmp_path), amqp_port=port) as server:
        up = Node(server)
        wait_until(lambda: up.bindings_of("x") == {"new"})
        down.wait_for_links()
        names = [name for name in server.node.broker.vhost("/").exchanges if "federation" in name]
        assert names == ["federation: x -> down B"]
        up.connection.close()


def test_links_follow_the_downstream_over_a_restart(up: Node, tmp_path: Any) -> None:
    with broker(http=True, node="down", disk=Disk(tmp_path)) as server:
        down = Node(server)
        down.channel.exchange_declare("x", "fanout", durable=True)
        down.declare("q")
        down.channel.queue_bind("q", "x", "")
        down.federate("^x$", up)
        down.connection.close()
    up.channel.basic_publish("x", "", b"meanwhile", pika.BasicProperties(delivery_mode=2))
    assert up.count("federation: x -> down") == 1
    with broker(http=True, node="down", disk=Disk(tmp_path)) as server:
        down = Node(server)
        assert down.bodies("q", 1) == ["meanwhile"]
        down.connection.close()


def test_dead_upstream_disturbs_nobody_and_is_reported(up: Node, down: Node) -> None:
    down.channel.exchange_declare("x", "fanout")
    down.declare("q")
    down.channel.queue_bind("q", "x", "")
    path = "/api/parameters/federation-upstream/%2F/dead"
    value = {"uri": "amqp://guest:guest@127.0.0.1:1", **FAST}
    assert ask(down.server, "PUT", path, {"value": value})[0] == 201
    down.put_upstream("live", up)
    sets = [{"upstream": "dead"}, {"upstream": "live", "exchange": "y"}, {"upstream": "gone"}]
    path = "/api/parameters/federation-upstream-set/%2F/s"
    assert ask(down.server, "PUT", path, {"value": sets})[0] == 201
    down.put_policy("^x$", federation_upstream_set="s")
    wait_until(lambda: [link["status"] for link in down.links()] == ["error", "running"])
    states = {link["upstream"]: link for link in down.links()}
    assert states["live"]["upstream_exchange"] == "y"
    down.wait_for_error(": Connection refused")
    for path in ("/api/federation-links/state/down", "/api/federation-links/%2F/state/down"):
        assert [link["upstream"] for link in ask(down.server, "GET", path)[1]] in (["dead"], [])
    assert len(ask(down.server, "GET", "/api/federation-links/%2F")[1]) == 2
    down.channel.basic_publish("x", "", b"1")
    up.channel.basic_publish("y", "", b"2")
    assert sorted(down.bodies("q", 2)) == ["1", "2"]
    restart = f"/api/federation-links/vhost/%2F/{states['live']['id']}"
    assert ask(down.server, "DELETE", f"{restart}/other/restart")[0] == 404
    assert ask(down.server, "DELETE", f"{restart}/down/restart")[0] == 204
    up.channel.basic_publish("y", "", b"3")
    assert down.bodies("q", 1) == ["3"]


def test_upstream_with_the_same_cluster_name_is_told_apart(nodes: Nodes) -> None:
    """Two nodes with the default name would share queues and drop each other's messages."""
    up, down = nodes.start("same"), nodes.start("same")
    down.channel.exchange_declare("x", "fanout")
    down.put_upstream("u", up)
    down.put_policy("^x$", federation_upstream="u")
    down.wait_for_error("named 'same' like this one")
    assert ask(up.server, "PUT", "/api/cluster-name", {"name": "other"})[0] == 204
    down.wait_for_links()


def test_link_acts_with_the_permissions_of_the_owner_of_the_upstream(nodes: Nodes) -> None:
    up = nodes.start("up")
    down = nodes.start("down", shovel_allowed_targets="127.0.0.1")
    down.channel.exchange_declare("x", "fanout")
    down.declare("q")
    down.channel.queue_bind("q", "x", "")
    user = {"password": "pw", "tags": "policymaker"}
    assert ask(down.server, "PUT", "/api/users/maker", user)[0] == 201
    patterns = {"configure": "", "write": "", "read": ""}
    assert ask(down.server, "PUT", "/api/permissions/%2F/maker", patterns)[0] == 201
    path = "/api/parameters/federation-upstream/%2F/u"
    value = {"uri": up.server.url, **FAST}
    assert ask(down.server, "PUT", path, {"value": value}, login="maker:pw")[0] == 201
    down.put_policy("^x$", federation_upstream="u")
    wait_until(lambda: down.links() and down.links()[0]["owner"] == "maker")
    down.wait_for_error("write access to exchange 'x'")
    patterns["write"] = "x"
    assert ask(down.server, "PUT", "/api/permissions/%2F/maker", patterns)[0] == 204
    down.wait_for_links()
    up.channel.basic_publish("x", "", b"1")
    assert down.bodies("q", 1) == ["1"]
    patterns["write"] = ""
    assert ask(down.server, "PUT", "/api/permissions/%2F/maker", patterns)[0] == 204
    down.wait_for_error("write access")


def test_policymaker_has_no_link_to_a_private_address(up: Node, down: Node) -> None:
    down.channel.exchange_declare("x", "fanout")
    user = {"password": "pw", "tags": "policymaker"}
    assert ask(down.server, "PUT", "/api/users/maker", user)[0] == 201
    patterns = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ask(down.server, "PUT", "/api/permissions/%2F/maker", patterns)[0] == 201
    path = "/api/parameters/federation-upstream/%2F/u"
    value = {"uri": up.server.url, **FAST}
    assert ask(down.server, "PUT", path, {"value": value}, login="maker:pw")[0] == 201
    down.put_policy("^x$", federation_upstream="u")
    down.wait_for_error("is not a public address")
    assert "federation: x -> down" not in up.queue_names()


@pytest.mark.parametrize(
    ("component", "value", "text"),
    [
        ("federation-upstream", {}, 'Key "uri" not found in u'),
        ("federation-upstream", {"uri": "http://x"}, "is not an amqp:// or amqps:// address"),
        ("federation-upstream", {"uri": []}, "uri should be an address"),
        ("federation-upstream", {"uri": "amqp://x", "colour": 1}, "Unrecognised terms"),
        ("federation-upstream", {"uri": "amqp://x", "ack-mode": "no"}, "ack-mode should be one"),
        ("federation-upstream", {"uri": "amqp://x", "max-hops": 0}, "max-hops should be from 1"),
        ("federation-upstream-set", {}, "u not a list"),
        ("federation-upstream-set", [{}], 'Key "upstream" not found in u'),
        ("federation-upstream-set", [{"upstream": "u", "uri": "amqp://x"}], "Unrecognised terms"),
    ],
)
def test_invalid_upstream_is_refused(
    alone: RunningBroker, component: str, value: object, text: str
) -> None:
    path = f"/api/parameters/{component}/%2F/u"
    status, why = reason(ask(alone, "PUT", path, {"value": value}))
    assert (status, text in why) == (400, True), why


def test_definitions_of_rabbitmq_move_messages(up: Node, down: Node) -> None:
    """A document as RabbitMQ exports it, with an upstream, a set and a policy."""
    facts = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    document: dict[str, Any] = {
        "rabbit_version": "3.10.8",
        "parameters": [
            {"vhost": "/", "component": "federation-upstream", "name": "north",
             "value": {"uri": up.server.url, "ack-mode": "on-confirm", "trust-user-id": False,
                       "expires": 3_600_000, "message-ttl": 60_000, "max-hops": 1}},
            {"vhost": "/", "component": "federation-upstream", "name": "no-login",
             "value": {"uri": "amqp://north.example"}},
            {"vhost": "/", "component": "federation-upstream-set", "name": "s",
             "value": [{"upstream": "north"}, {"upstream": "no-login"}]},
        ],
        "policies": [{"vhost": "/", "name": "p", "pattern": "^orders$", "apply-to": "exchanges",
                      "definition": {"federation-upstream-set": "s"}, "priority": 0}],
        "exchanges": [{"name": "orders", "type": "topic", "internal": False, **facts}],
        "queues": [{"name": "q", **facts}],
        "bindings": [{"source": "orders", "vhost": "/", "destination": "q",
                      "destination_type": "queue", "routing_key": "#", "arguments": {}}],
    }  # fmt: skip
    assert ask(down.server, "POST", "/api/definitions", document)[0] == 204
    wait_until(lambda: [link["status"] for link in down.links()] == ["error", "running"])
    assert "needs a user and a password" in down.links()[0]["error"]
    arguments = up.server.node.broker.vhost("/").queues["federation: orders -> down"].arguments
    assert {name: arguments[name].value for name in ("x-expires", "x-message-ttl")} == {
        "x-expires": 3_600_000,
        "x-message-ttl": 60_000,
    }
    up.channel.basic_publish("orders", "k", b"1", pika.BasicProperties(user_id="guest"))
    wait_until(lambda: down.count("q") == 1)
    _, properties, body = down.channel.basic_get("q", auto_ack=True)
    assert (body, properties.user_id) == (b"1", None)
