"""Trace a message over HTTP, and explain queues and messages with real clients."""

from collections.abc import Iterator
from typing import Any

import pytest

from leveret import slices
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.disk import FakeDisk
from tests.http.insight_client import ask, opened, properties


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True, disk=FakeDisk()) as server:
        yield server


def trace(server: RunningBroker, query: str) -> dict[str, Any]:
    """Return all pages of a trace as one."""
    found: dict[str, Any] = {"places": [], "events": [], "scanned": 0}
    cursor = ""
    while True:
        status, page = ask(server, "GET", f"/trace?{query}{cursor}")
        assert status == 200, page
        found["message_id"] = page["message_id"]
        for name in ("places", "events", "scanned"):
            found[name] += page[name]
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


def test_dead_letter_is_followed_through_queues_and_life_events(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("dead", durable=True, arguments={"x-remember": "history"})
    arguments = {
        "x-remember": "history",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    channel.queue_declare("work", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish(
            "", "work", b"x", properties(message_id=f"m{number}", delivery_mode=2)
        )
    got = [channel.basic_get("work") for _ in range(7)]
    method, sent, _ = got[-1]
    assert sent is not None and sent.message_id == "m6"
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_publish("", "work", b"sync", properties(delivery_mode=2))
    found = trace(server, "message_id=m6")
    (place,) = found["places"]
    assert (place["queue"], place["state"], place["message_id"]) == ("dead", "ready", "m6")
    lives = [event for event in found["events"] if event["source"] == "history"]
    assert sorted((event["event"], event["queue"]) for event in lives) == [
        ("dead-lettered", "work"),
        ("delivered", "work"),
        ("queued", "dead"),
        ("queued", "work"),
        ("rejected", "work"),
    ]
    (death,) = [event for event in found["events"] if event["source"] == "x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("work", "rejected", 1)
    by_id = trace(server, f"id={place['id']}")
    assert by_id["message_id"] == "m6"
    assert [p["id"] for p in by_id["places"]] == [place["id"]]
    events = {(event["event"], event["queue"]) for event in by_id["events"]}
    assert ("queued", "dead") in events
    channel.connection.close()


def test_trace_finds_all_states_and_places(server: RunningBroker) -> None:
    channel = opened(server)
    channel.exchange_declare("slow", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    for name in ("a", "b", "c"):
        channel.queue_declare(name, arguments={"x-delayed": True})
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    same = {"message_id": "same"}
    channel.basic_publish("", "a", b"1", properties(**same))
    channel.basic_publish("", "b", b"2", properties(**same, headers={"x-delay": 90_000}))
    channel.basic_publish("", "c", b"3", properties(**same))
    channel.basic_publish("", "s", b"4", properties(**same))
    channel.basic_publish("slow", "", b"5", properties(**same, headers={"x-delay": 90_000}))
    channel.basic_publish("", "a", b"6", properties(message_id="other"))
    channel.basic_consume("c", lambda *_: None, consumer_tag="tag")
    found = trace(server, "message_id=same")
    places = {(p["queue"], p["state"]): p for p in found["places"]}
    assert sorted(places) == [
        ("", "scheduled"),
        ("a", "ready"),
        ("b", "scheduled"),
        ("c", "unacked"),
        ("s", "ready"),
    ]
    assert places["", "scheduled"]["held_for"] == "slow"
    assert places["c", "unacked"]["holder"]["consumer_tag"] == "tag"
    assert places["b", "scheduled"]["due_at_ms"] > 0
    assert found["scanned"] == 6
    assert trace(server, "message_id=same&vhost=none")["places"] == []
    channel.connection.close()


def test_delayed_message_is_followed_though_its_number_changes(server: RunningBroker) -> None:
    channel = opened(server)
    arguments = {"x-delayed": True, "x-remember": "history"}
    channel.queue_declare("later", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for mode in (1, 2):
        sent = properties(message_id=f"mode{mode}", headers={"x-delay": 10}, delivery_mode=mode)
        channel.basic_publish("", "later", b"x", sent)
    got: list[str] = []
    for method, received, _ in channel.consume("later", auto_ack=False):
        got.append(received.message_id)
        channel.basic_ack(method.delivery_tag)
        if len(got) == 2:
            break
    channel.cancel()
    channel.basic_publish("", "later", b"sync", properties(delivery_mode=2))
    for mode in (1, 2):
        events = [event["event"] for event in trace(server, f"message_id=mode{mode}")["events"]]
        assert events == ["queued", "due", "delivered", "acked"]
    channel.connection.close()


def test_trace_continues_from_its_cursor(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = opened(server)
    for name in ("a", "b", "c"):
        channel.queue_declare(name)
        for number in range(5):
            channel.basic_publish("", name, b"x", properties(message_id=f"m{number}"))
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    channel.basic_publish("", "s", b"x", properties(message_id="m3"))
    whole = trace(server, "message_id=m3")
    # A request whose time is already over stops before the first queue.
    monkeypatch.setattr(slices, "REQUEST_S", 0.0)
    status, page = ask(server, "GET", "/trace?message_id=m3")
    assert (status, page["cursor"] is not None, page["scanned"]) == (200, True, 0)
    monkeypatch.undo()
    rest = trace(server, f"message_id=m3&cursor={page['cursor']}")
    assert rest == whole
    assert [p["queue"] for p in whole["places"]] == ["a", "b", "c", "s"]
    channel.connection.close()


@pytest.mark.parametrize(
    "query",
    ["", "message_id=", "id=x", "message_id=a&id=5", "message_id=a&cursor=zz", f"id={10**25}"],
)
def test_invalid_requests_are_refused(server: RunningBroker, query: str) -> None:
    status, body = ask(server, "GET", f"/trace?{query}")
    assert (status, body["error"]) == (400, "bad_request")


def test_explanations_of_a_queue_and_a_message(server: RunningBroker) -> None:
    channel = opened(server)
    channel.queue_declare("q", durable=True)
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("q", lambda *_: None, consumer_tag="stuck")
    status, found = ask(server, "GET", "/queues/%2F/q/explain")
    assert (status, found["moving"]) == (200, False)
    assert [reason["code"] for reason in found["reasons"]] == ["prefetch_full", "unacked"]
    (holder,) = found["reasons"][0]["details"]["holders"]
    assert (holder["consumer_tag"], holder["unacked"], holder["user"]) == ("stuck", 2, "guest")
    _, held = ask(server, "GET", "/queues/%2F/q/unacked")
    _, found = ask(server, "GET", f"/queues/%2F/q/messages/{held['items'][1]['id']}/explain")
    assert [reason["code"] for reason in found["reasons"]] == ["unacked"]
    assert "Consumer 'stuck' has held the message for" in found["reasons"][0]["text"]
    _, ready = ask(server, "GET", "/queues/%2F/q/peek?count=2")
    _, found = ask(server, "GET", f"/queues/%2F/q/messages/{ready[1]['id']}/explain")
    assert [reason["code"] for reason in found["reasons"]] == ["behind", "prefetch_full"]
    for wrong, status in (("5", 200), ("x", 400), ("9" * 30, 400)):
        got, found = ask(server, "GET", f"/queues/%2F/q/messages/{wrong}/explain")
        assert got == status
    _, found = ask(server, "GET", "/queues/%2F/q/messages/5/explain")
    assert [reason["code"] for reason in found["reasons"]] == ["not_found"]
    channel.connection.close()


def test_explanation_names_an_alarm() -> None:
    with broker(http=True) as server:
        channel = opened(server)
        channel.queue_declare("q")
        server.node.front.alarms.append("memory")
        _, found = ask(server, "GET", "/queues/%2F/q/explain")
        alarm = found["reasons"][-1]
        assert (alarm["code"], alarm["details"]) == ("alarm", {"alarm": "low on memory"})
        server.node.front.alarms.clear()
        channel.connection.close()
