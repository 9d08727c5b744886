"""Look into queues over HTTP: peek, search, messages in flight, pauses, routes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.auth import Credentials, Refusal, SingleUserAuthenticator, User
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import ManualClock
from leveret.testing.disk import FakeDisk
from tests.http.asking import ask_whole
from tests.http.insight_client import ask, opened, properties, search_all


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture(scope="module")
def orders(server: RunningBroker) -> Iterator[str]:
    """Declare a queue with 40 messages, 3 of them in flight, and 5 scheduled ones."""
    channel = opened(server)
    channel.queue_declare("orders", arguments={"x-delayed": True})
    for number in range(40):
        channel.basic_publish(
            "",
            "orders",
            f'{{"order": {{"id": {number}, "items": [{{"sku": "s{number % 4}"}}]}}}}'.encode(),
            properties(
                message_id=f"m{number}",
                type="created" if number % 2 else "changed",
                headers={"tenant": "a" if number % 3 else "b", "deep": {"list": [number, "x"]}},
            ),
        )
    for number in range(5):
        channel.basic_publish(
            "", "orders", b"later %d" % number, properties(headers={"x-delay": 60_000 + number})
        )
    for _ in range(3):
        channel.basic_get("orders")
    yield "/queues/%2F/orders"
    channel.connection.close()


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["properties"].get("message_id", "") for item in items]


def test_peek_shows_ids_and_takes_an_offset(server: RunningBroker, orders: str) -> None:
    _, items = ask(server, "GET", f"{orders}/peek?count=2&offset=5")
    assert ids(items) == ["m8", "m9"]
    assert [item["message_count"] for item in items] == [31, 30]
    assert all(item["state"] == "ready" and item["id"].isdigit() for item in items)
    assert 0 <= items[0]["age_ms"] < 60_000
    _, items = ask(server, "GET", f"{orders}/peek?count=2&offset=1&from_end=true")
    assert ids(items) == ["m37", "m38"]
    assert [item["message_count"] for item in items] == [2, 1]
    assert ask(server, "GET", f"{orders}/peek?count=2&offset=1000")[1] == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"properties": {"message_id": "m7"}}, ["m7"]),
        ({"properties": {"message_id": "m"}}, []),
        ({"properties": {"type": "created"}, "json": {"$.order.items[0].sku": "s1"}}, 10),
        ({"headers": {"tenant": "b"}}, 14),
        ({"headers": {"deep.list.0": 12}}, ["m12"]),
        ({"headers": {"deep.list.1": "x", "tenant": "b"}}, 14),
        ({"json": {"$.order.id": 31}}, ["m31"]),
        ({"json": {"$.order.id": "31"}}, []),
        ({"text": '"id": 30,'}, ["m30"]),
        ({"routing_key": "orders"}, 45),
        ({"routing_key": "order"}, 0),
        ({"states": ["scheduled"]}, 5),
        ({"states": ["unacked"]}, ["m0", "m1", "m2"]),
        ({"states": ["ready"], "text": "order"}, 37),
        ({"older_than_ms": 3_600_000}, 0),
        ({"newer_than_ms": 3_600_000}, 45),
        ({}, 45),
    ],
)
def test_search_finds_the_messages_that_match(
    server: RunningBroker, orders: str, wanted: dict[str, object], found: list[str] | int
) -> None:
    items = search_all(server, f"{orders}/search", wanted)
    if isinstance(found, int):
        assert len(items) == found
    else:
        assert ids(items) == found
    pages = search_all(server, f"{orders}/search", {**wanted, "limit": 7})
    assert [item["id"] for item in pages] == [item["id"] for item in items]


def test_search_shows_the_state_of_each_message(server: RunningBroker, orders: str) -> None:
    _, page = ask(server, "POST", f"{orders}/search", {"states": ["scheduled", "unacked"]})
    assert (page["scanned"], page["total"], page["cursor"]) == (8, 8, None)
    later = page["items"][0]
    assert later["state"] == "scheduled"
    assert later["due_at_ms"] > 0
    held = page["items"][-1]
    assert held["state"] == "unacked"
    assert held["holder"] == {
        "connection": held["holder"]["connection"],
        "channel": 1,
        "consumer_tag": "",
        "user": "guest",
    }
    assert " -> " in held["holder"]["connection"]
    assert (held["deliveries"], held["held_ms"] < 60_000) == (1, True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"properties": {"colour": "red"}}, "no property 'colour'"),
        ({"properties": {"priority": "high"}}, "compared with a whole number"),
        ({"properties": {"type": 5}}, "compared with text"),
        ({"headers": {"a": [1]}}, "compared with a single value"),
        ({"json": {"order.id": 1}}, "does not begin with $"),
        ({"json": {"$.a[*]": 1}}, "cannot be read from '[*]' on"),
        ({"json": {"$.a": {}}}, "compared with a single value"),
        ({"states": ["gone"]}, "no state 'gone'"),
        ({"text": ""}, "from 1 to"),
        ({"older_than_ms": -1}, "a number of milliseconds"),
        ({"limit": 0}, "from 1 to 1000"),
        ({"limit": 100_000}, "from 1 to 1000"),
        ({"cursor": "x"}, "the cursor does not come from"),
        ({"cursor": "WzksIiIsMCwwLDAsMF0="}, "the cursor does not come from"),
        ({"colour": 1}, "'colour' is not a known field"),
        ({"text": 5}, "'text' must be a text or null, not a whole number"),
    ],
)
def test_invalid_filters_are_refused_with_a_reason(
    server: RunningBroker, orders: str, body: dict[str, object], reason: str
) -> None:
    status, answer = ask(server, "POST", f"{orders}/search", body)
    assert status == 400
    assert reason in answer["reason"]


def test_peek_and_search_leave_the_queue_unchanged(server: RunningBroker, orders: str) -> None:
    _, before = ask(server, "GET", orders)
    ask(server, "GET", f"{orders}/peek?count=100")
    search_all(server, f"{orders}/search", {"limit": 3})
    ask(server, "GET", f"{orders}/unacked")
    ask(server, "GET", f"{orders}/explain")
    _, after = ask(server, "GET", orders)
    assert after == before
    _, items = ask(server, "GET", f"{orders}/peek?count=100")
    assert not any(item["redelivered"] for item in items)


def test_unacked_names_the_consumer(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("work", durable=True)
    for number in range(7):
        channel.basic_publish("", "work", b"%d" % number)
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("work", lambda *_: None, consumer_tag="slow")
    status, page = ask(server, "GET", "/queues/%2F/work/unacked?limit=2")
    assert status == 200
    assert [item["payload"] for item in page["items"]] == ["0", "1"]
    assert {item["holder"]["consumer_tag"] for item in page["items"]} == {"slow"}
    _, rest = ask(server, "GET", f"/queues/%2F/work/unacked?cursor={page['cursor']}")
    assert [item["payload"] for item in rest["items"]] == ["2", "3", "4"]
    assert rest["cursor"] is None
    assert (rest["total"], rest["scanned"]) == (5, 3)
    channel.connection.close()


def test_acks_of_a_transaction_are_in_flight_until_its_commit(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("tx")
    channel.basic_publish("", "tx", b"held")
    channel.tx_select()
    method, _, _ = channel.basic_get("tx")
    channel.basic_ack(method.delivery_tag)
    _, page = ask(server, "GET", "/queues/%2F/tx/unacked")
    assert [item["payload"] for item in page["items"]] == ["held"]
    channel.tx_commit()
    _, page = ask(server, "GET", "/queues/%2F/tx/unacked")
    assert page["items"] == []
    channel.connection.close()


def test_streams_can_be_peeked_and_searched(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(30):
        channel.basic_publish("", "s", b"event %d" % number, properties(message_id=f"e{number}"))
    path = "/queues/%2F/s"
    _, items = ask(server, "GET", f"{path}/peek?count=3&offset=4")
    assert ids(items) == ["e4", "e5", "e6"]
    assert items[0]["properties"]["headers"]["x-stream-offset"] == 4
    _, items = ask(server, "GET", f"{path}/peek?count=2&from_end=true")
    assert ids(items) == ["e28", "e29"]
    found = search_all(server, f"{path}/search", {"text": "event 2", "limit": 4})
    assert ids(found) == ["e2", *(f"e2{n}" for n in range(10))]
    channel.connection.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/queues/%2F/none/peek"),
        ("POST", "/queues/%2F/none/search"),
        ("GET", "/queues/%2F/none/unacked"),
        ("GET", "/queues/%2F/none/explain"),
        ("GET", "/queues/%2F/none/messages/1/explain"),
        ("PUT", "/queues/%2F/none/pause"),
        ("DELETE", "/queues/%2F/none/pause"),
        ("GET", "/queues/none/orders/explain"),
        ("POST", "/exchanges/%2F/none/route"),
    ],
)
def test_unknown_queue_is_a_404_and_a_login_is_needed(
    server: RunningBroker, method: str, path: str
) -> None:
    status, body = ask(server, method, path)
    what = "exchange" if method == "POST" and path.endswith("route") else "queue"
    is_change = method in ("PUT", "POST")
    reason = f"no {what} 'none' in vhost '/'" if is_change else "Not Found"
    assert (status, body["reason"]) == (404, reason)
    status, body = ask(server, method, path, login=False)
    assert status == 401


def test_a_body_is_returned_whole_in_every_state(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("bodies", arguments={"x-delayed": True})
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    held, ready, later = (letter * 300_000 + b"\xff" for letter in (b"h", b"r", b"l"))
    channel.basic_publish("", "bodies", held)
    channel.basic_get("bodies")
    channel.basic_publish("", "bodies", ready)
    channel.basic_publish("", "bodies", later, properties(headers={"x-delay": 60_000}))
    channel.basic_publish("", "log", ready)
    found = search_all(server, "/queues/%2F/bodies/search", {"truncate": 5})
    (logged,) = ask(server, "GET", "/queues/%2F/log/peek")[1]
    bodies = {}
    for item in found:
        path = f"/api/queues/%2F/bodies/messages/{item['id']}/body"
        status, bodies[item["state"]], headers = ask_whole(server, "GET", path)
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        assert headers["Content-Disposition"] == "attachment"
    assert bodies == {"unacked": held, "ready": ready, "scheduled": later}
    for path in (f"queues/%2F/log/messages/{logged['id']}", "streams/%2F/log/messages/0"):
        assert ask_whole(server, "GET", f"/api/{path}/body")[:2] == (200, ready)
    for path in ("queues/%2F/bodies/messages/1", "streams/%2F/log/messages/1"):
        assert ask_whole(server, "GET", f"/api/{path}/body")[0] == 404
    assert ask_whole(server, "GET", "/api/streams/%2F/bodies/messages/0/body")[0] == 404
    channel.connection.close()


def test_a_text_that_is_cut_stays_a_text(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("texts")
    channel.basic_publish("", "texts", "a€€".encode())
    channel.basic_publish("", "texts", b"a\xff\xff\xff\xff")
    shown = []
    for size in (2, 3, 4):
        _, items = ask(server, "GET", f"/queues/%2F/texts/peek?count=2&truncate={size}")
        shown.append((items[0]["payload"], items[1]["payload_encoding"]))
    assert shown == [("a", "base64"), ("a", "base64"), ("a€", "base64")]
    channel.connection.close()


class Guarded(User):
    """A user without access to the queue `secret` and without tags."""

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        return name != "secret"


class Gate(SingleUserAuthenticator):
    """Accept only one user."""

    def __init__(self, *tags: str) -> None:
        super().__init__("guest", "guest")
        self._tags = tags

    def login(self, credentials: Credentials, then: Callable[[User | Refusal], None]) -> None:
        then(Guarded(credentials.name, self._tags))


def test_messages_are_shown_only_with_the_read_permission() -> None:
    with broker(http=True) as server:
        channel = opened(server)
        for name in ("secret", "open"):
            channel.queue_declare(name)
            channel.basic_publish("", name, b"x", properties(message_id="m"))
        (secret,) = ask(server, "GET", "/queues/%2F/secret/peek")[1]
        server.node.front.authenticator = Gate("management")
        asked = [
            ("GET", "peek"),
            ("POST", "search"),
            ("GET", "unacked"),
            ("GET", f"messages/{secret['id']}/explain"),
            ("GET", f"messages/{secret['id']}/body"),
            ("PUT", "pause"),
            ("DELETE", "pause"),
        ]
        for method, path in asked:
            status, body = ask(server, method, f"/queues/%2F/secret/{path}")
            assert (status, "not authorised to" in body["reason"]) == (401, True)
        for method, path in (asked[0], asked[2]):
            assert ask(server, method, f"/queues/%2F/open/{path}")[0] == 200
        _, found = ask(server, "GET", "/trace?message_id=m")
        assert [place["queue"] for place in found["places"]] == ["open"]
        _, found = ask(server, "GET", f"/trace?id={secret['id']}")
        assert found["places"] == []
        server.node.front.authenticator = Gate()
        for method, path in (
            ("GET", "/queues/%2F/open/explain"),
            ("PUT", "/queues/%2F/open/pause"),
            ("GET", "/trace?message_id=m"),
            ("POST", "/exchanges/%2F/amq.topic/route"),
        ):
            status, body = ask(server, method, path)
            assert (status, body["reason"]) == (401, "Not management user")
        channel.connection.close()


def test_paused_queue_delivers_nothing_and_takes_messages() -> None:
    with broker(http=True) as server:
        channel = opened(server)
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        got: list[bytes] = []
        channel.basic_consume("q", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
        path = "/queues/%2F/q"
        assert ask(server, "PUT", f"{path}/pause") == (204, None)
        assert ask(server, "PUT", f"{path}/pause") == (204, None)
        channel.basic_publish("", "q", b"a")
        late = opened(server)
        late.basic_consume("q", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
        channel.basic_publish("", "q", b"b")
        assert late.basic_get("q") == (None, None, None)
        channel.connection.process_data_events(0.1)
        late.connection.process_data_events(0.1)
        assert got == []
        _, queue = ask(server, "GET", path)
        assert (queue["paused"], queue["messages_ready"], queue["consumers"]) == (True, 2, 2)
        _, why = ask(server, "GET", f"{path}/explain")
        assert why["reasons"][0]["code"] == "paused"
        assert why["reasons"][0]["details"]["user"] == "guest"
        assert ask(server, "DELETE", f"{path}/pause") == (204, None)
        while len(got) < 2:
            channel.connection.process_data_events(0.1)
            late.connection.process_data_events(0.1)
        assert sorted(got) == [b"a", b"b"]
        assert ask(server, "GET", path)[1]["paused"] is False
        channel.connection.close()
        late.connection.close()


def test_pause_survives_a_restart_and_ends_with_its_queue() -> None:
    disk = FakeDisk()
    with broker(http=True, disk=disk) as server:
        channel = opened(server)
        for name in ("kept", "gone"):
            channel.queue_declare(name, durable=True)
            assert ask(server, "PUT", f"/queues/%2F/{name}/pause")[0] == 204
        channel.queue_delete("gone")
        channel.queue_declare("gone", durable=True)
        channel.basic_publish("", "kept", b"x", properties(delivery_mode=2))
        channel.connection.close()
    with broker(http=True, disk=disk.copy()) as server:
        channel = opened(server)
        got: list[bytes] = []
        channel.basic_consume("kept", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
        channel.connection.process_data_events(0.2)
        assert got == []
        assert ask(server, "GET", "/queues/%2F/kept")[1]["paused"] is True
        assert ask(server, "GET", "/queues/%2F/gone")[1]["paused"] is False
        ask(server, "DELETE", "/queues/%2F/kept/pause")
        while not got:
            channel.connection.process_data_events(0.1)
        channel.connection.close()


def test_paused_queue_does_not_expire() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server:
        channel = opened(server)
        channel.queue_declare("q", arguments={"x-expires": 1000})
        ask(server, "PUT", "/queues/%2F/q/pause")
        clock.advance(5)
        assert ask(server, "GET", "/queues/%2F/q")[0] == 200
        ask(server, "DELETE", "/queues/%2F/q/pause")
        assert ask(server, "GET", "/queues/%2F/q")[0] == 200
        clock.advance(1.5)
        assert ask(server, "GET", "/queues/%2F/q")[0] == 404
        channel.connection.close()


def test_paused_stream_delivers_nothing() -> None:
    with broker(http=True) as server:
        channel = opened(server)
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        ask(server, "PUT", "/queues/%2F/s/pause")
        got: list[bytes] = []
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume("s", lambda _c, _m, _p, body: got.append(body))
        channel.basic_publish("", "s", b"x")
        channel.connection.process_data_events(0.1)
        assert got == []
        ask(server, "DELETE", "/queues/%2F/s/pause")
        while not got:
            channel.connection.process_data_events(0.1)
        channel.connection.close()


def test_route_is_found_without_a_publish(server: RunningBroker) -> None:
    channel = opened(server)
    for name in ("eu", "us", "rest", "all"):
        channel.queue_declare(name)
    channel.exchange_declare("spare", "fanout")
    channel.exchange_declare("t", "topic", arguments={"alternate-exchange": "spare"})
    channel.exchange_declare("h", "headers")
    channel.exchange_bind("h", "t", "eu.#")
    channel.queue_bind("us", "t", "us.*")
    channel.queue_bind("eu", "h", arguments={"x-match": "any", "vip": True, "size": 3})
    channel.queue_bind("rest", "spare")

    def route(name: str, **body: object) -> dict[str, Any]:
        status, found = ask(server, "POST", f"/exchanges/%2F/{name}/route", body)
        assert status == 200, found
        assert isinstance(found, dict)
        return found

    nowhere = {"queues": [], "exchanges": [], "held_by": [], "alternate": False, "routed": False}
    assert route("t", routing_key="us.east") == {**nowhere, "queues": ["us"], "routed": True}
    found = route("t", routing_key="eu.de", headers={"vip": True})
    assert found == {**nowhere, "queues": ["eu"], "exchanges": ["h"], "routed": True}
    assert route("t", routing_key="eu.de", headers={"vip": False}) == {
        **nowhere,
        "exchanges": ["h"],
    }
    assert route("t", routing_key="asia") == {
        **nowhere,
        "queues": ["rest"],
        "exchanges": ["spare"],
        "alternate": True,
        "routed": True,
    }
    assert route("amq.default", routing_key="all") == {**nowhere, "queues": ["all"], "routed": True}
    assert route("h", headers={"size": 3})["queues"] == ["eu"]
    assert route("t", routing_key="x", headers={"CC": ["us.a"]})["queues"] == ["us"]
    status, body = ask(server, "POST", "/exchanges/%2F/t/route", {"routing_key": "x" * 256})
    assert (status, "at most 255 bytes" in body["reason"]) == (400, True)
    status, body = ask(server, "POST", "/exchanges/%2F/t/route", {"headers": {"n": 1 << 70}})
    assert status == 400
    assert channel.queue_declare("us", passive=True).method.message_count == 0
    channel.connection.close()
