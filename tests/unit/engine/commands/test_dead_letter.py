"""Dead letters: where they go, which headers they carry, and which cycles are cut."""

from collections.abc import Callable

import pytest

from leveret.engine.commands.dead_letter import deaths_of, is_cycle, record_death
from leveret.engine.message import Address
from leveret.engine.queues.stuck_dead_letters import RETRY_MS
from leveret.wire.properties import Properties
from leveret.wire.tables import plain_table, table_of
from tests.compat.client import Method
from tests.protocol.stage import START_MS
from tests.unit.engine.front import Client, deaths, headers


def client_with_dead_letters(**arguments: object) -> Client:
    client = Client()
    client.queue("dead")
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)
    return client


def kill_by_reject(client: Client) -> None:
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.reject(1, requeue=False)


def kill_by_expiry(client: Client) -> None:
    client.publish("q", "a", expiration="10")
    client.advance(10)


def kill_by_length(client: Client) -> None:
    client.publish("q", "a", "b")


def kill_by_failures(client: Client) -> None:
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.reject(1)


REASONS = [
    (kill_by_reject, {}, "rejected"),
    (kill_by_expiry, {}, "expired"),
    (kill_by_length, {"x_max_length": 1}, "maxlen"),
    (kill_by_length, {"x_max_length": 0, "x_overflow": "reject-publish-dlx"}, "maxlen"),
    (kill_by_failures, {"x_delivery_limit": 0}, "delivery_limit"),
]


@pytest.mark.parametrize(("kill", "arguments", "reason"), REASONS)
def test_a_message_that_leaves_its_queue_is_dead_lettered_with_the_reason(
    kill: Callable[[Client], None], arguments: dict[str, object], reason: str
) -> None:
    client = client_with_dead_letters(**arguments)
    kill(client)
    dead = client.get("dead")
    assert deaths(dead) == [("q", reason, 1)]
    assert dead is not None and dead.body == b"a"
    assert headers(dead)["x-first-death-reason"] == reason
    assert headers(dead)["x-last-death-queue"] == "q"


def test_what_is_purged_or_deleted_is_not_dead_lettered() -> None:
    client = client_with_dead_letters()
    client.publish("q", "a")
    client.send("queue.purge", queue="q")
    client.publish("q", "b")
    client.send("queue.delete", queue="q")
    assert client.get("dead") is None


def test_a_dead_letter_exchange_that_does_not_exist_loses_the_message_quietly() -> None:
    client = Client()
    queue = client.queue("q", x_dead_letter_exchange="nowhere")
    kill_by_reject(client)
    assert (queue.ready.count, queue.unacked) == (0, 0)
    assert client.publish("q", "b") == []


def test_the_expiration_of_a_dead_message_is_kept_in_its_history_only() -> None:
    client = client_with_dead_letters()
    client.publish("q", "a", expiration="10", priority=3)
    client.advance(10)
    dead = client.get("dead")
    assert dead is not None and dead.content is not None
    assert "expiration" not in dead.content.properties
    assert dead.content.properties["priority"] == 3
    (entry,) = plain_death(dead)
    assert entry["original-expiration"] == "10"
    assert entry["time"] == (START_MS + 10) // 1000


def plain_death(dead: Method | None) -> list[dict[str, object]]:
    found = headers(dead)["x-death"]
    assert isinstance(found, list)
    return found


def test_repeated_deaths_are_counted_and_the_newest_is_first() -> None:
    """A cycle of reject, wait and retry goes on, because a consumer takes part in it."""
    client = Client()
    client.queue("work", x_dead_letter_exchange="", x_dead_letter_routing_key="wait")
    client.queue(
        "wait", x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="work"
    )
    client.publish("work", "a")
    for tag in range(1, 4):
        assert client.get("work", no_ack=False) is not None
        client.reject(tag, requeue=False)
        client.advance(10)
    assert deaths(client.get("work")) == [("wait", "expired", 3), ("work", "rejected", 3)]


def test_a_cycle_without_a_rejection_is_cut() -> None:
    client = Client()
    for name, other in (("a", "b"), ("b", "a")):
        client.queue(
            name, x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key=other
        )
    client.publish("a", "x")
    client.advance(10)
    assert client.stage.broker.vhost("/").queues["b"].ready.count == 1
    client.advance(10)
    found = client.get("leveret.parked")
    assert headers(found)["x-parked-queue"] == "b"
    assert "dead_letter_cycle: after expired in 'b'" in str(headers(found)["x-parked-reason"])
    assert deaths(found) == [("b", "expired", 1), ("a", "expired", 1)]
    assert [q.ready.count for q in client.stage.broker.vhost("/").queues.values()] == [0, 0, 0]


def test_a_retry_queue_behind_a_delivery_limit_loses_nothing() -> None:
    client = Client()
    client.queue(
        "work", x_dead_letter_exchange="", x_dead_letter_routing_key="wait", x_delivery_limit=1
    )
    client.queue(
        "wait", x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="work"
    )
    client.publish("work", "a")
    for tag in (1, 2):
        assert client.get("work", no_ack=False) is not None
        client.reject(tag, requeue=True)
    client.advance(10)
    found = client.get("leveret.parked")
    assert deaths(found) == [("wait", "expired", 1), ("work", "delivery_limit", 1)]
    assert not client.stage.broker.turn.losses.dropped


def test_a_cycle_is_dropped_if_parking_is_off_or_the_message_is_parked_already() -> None:
    client = Client()
    client.stage.broker.parks_cycles = False
    client.queue("q", x_dead_letter_exchange="", x_message_ttl=10)
    client.publish("q", "a")
    client.advance(10)
    assert "leveret.parked" not in client.stage.broker.vhost("/").queues
    client.stage.broker.parks_cycles = True
    client.queue("leveret.parked", x_dead_letter_exchange="", x_message_ttl=10)
    client.publish("leveret.parked", "a")
    client.advance(10)
    assert [q.ready.count for q in client.stage.broker.vhost("/").queues.values()] == [0, 0]
    assert client.stage.broker.turn.losses.dropped == {"dead_letter_cycle": 2}


def test_without_a_key_of_its_own_a_dead_letter_keeps_its_keys_and_cc() -> None:
    client = Client()
    client.queue("q", x_dead_letter_exchange="amq.direct")
    client.queue("by-key")
    client.queue("by-cc")
    for queue, key in (("by-key", "q"), ("by-cc", "copy")):
        client.send("queue.bind", queue=queue, exchange="amq.direct", routing_key=key)
    client.publish("q", "a", headers={"CC": ["copy"]})
    client.get("q", no_ack=False)
    client.reject(1, requeue=False)
    dead = client.get("by-key")
    assert client.get("by-cc") is not None
    assert headers(dead)["CC"] == ["copy"]
    assert plain_death(dead)[0]["routing-keys"] == ["q", "copy"]


def test_a_history_that_a_publisher_sends_is_continued() -> None:
    client = client_with_dead_letters()
    told = {"queue": "q", "reason": "rejected", "count": ("l", 4)}
    client.publish("q", "a", headers={"x-death": [told]})
    client.get("q", no_ack=False)
    client.reject(1, requeue=False)
    assert deaths(client.get("dead")) == [("q", "rejected", 5)]


def test_a_history_of_another_shape_does_no_harm() -> None:
    for nonsense in ("text", [1, "two"], {"queue": "q"}, [{"queue": 5, "count": "many"}]):
        properties = Properties()
        properties.headers = table_of({"x-death": nonsense})
        record_death(properties, "q", "rejected", Address("", "k"), 5000)
        entry = plain_table(deaths_of(properties.headers)[0])
        assert (entry["queue"], entry["count"]) == ("q", 1)


def test_the_count_of_an_entry_that_has_none_starts_at_one() -> None:
    properties = Properties()
    properties.headers = table_of({"x-death": [{"queue": "q", "reason": "expired", "count": "x"}]})
    (entry,) = record_death(properties, "q", "expired", Address("", "k"), 5000)
    assert plain_table(entry)["count"] == 1


@pytest.mark.parametrize(
    ("history", "target", "expected"),
    [
        ([], "a", False),
        ([("a", "expired")], "a", True),
        ([("b", "expired"), ("a", "maxlen")], "a", True),
        ([("b", "expired"), ("a", "rejected")], "a", False),
        ([("b", "rejected"), ("a", "expired")], "a", False),
        ([("a", "expired"), ("b", "rejected")], "a", True),
        ([("b", "expired")], "a", False),
    ],
)
def test_a_return_to_the_queue_without_a_rejection_is_a_cycle(
    history: list[tuple[str, str]], target: str, expected: bool
) -> None:
    entries = [table_of({"queue": queue, "reason": reason}) for queue, reason in history]
    assert is_cycle(entries, target) == expected


def test_over_the_delivery_limit_without_an_exchange_a_message_is_parked_or_dropped() -> None:
    client = Client()
    queue = client.queue("q", x_delivery_limit=0)
    kill_by_failures(client)
    assert deaths(client.get("leveret.parked")) == [("q", "delivery_limit", 1)]
    client.stage.broker.parks = False
    client.publish("q", "b")
    client.get("q", no_ack=False)
    client.reject(3)
    assert client.get("leveret.parked") is None
    assert (queue.ready.count, queue.unacked) == (0, 0)


def test_at_least_once_keeps_a_dead_letter_until_a_queue_takes_it() -> None:
    client = Client()
    queue = client.queue(
        "q",
        x_queue_type="quorum",
        x_overflow="reject-publish",
        x_dead_letter_strategy="at-least-once",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="dead",
    )
    kill_by_reject(client)
    assert queue.stuck == 1
    client.queue("dead")
    assert queue.stuck == 0
    assert client.drain("dead") == ["a"]


def test_at_least_once_retries_only_the_queues_that_refused_the_dead_letter() -> None:
    client = Client()
    queue = client.queue(
        "q",
        x_queue_type="quorum",
        x_overflow="reject-publish",
        x_dead_letter_strategy="at-least-once",
        x_dead_letter_exchange="amq.fanout",
    )
    client.queue("open")
    client.queue("full", x_max_length=1, x_overflow="reject-publish")
    client.publish("full", "first")
    for name in ("open", "full"):
        client.send("queue.bind", queue=name, exchange="amq.fanout")
    kill_by_reject(client)
    assert queue.stuck == 1
    for _ in range(5):
        client.advance(RETRY_MS)
    assert queue.stuck == 1
    assert client.drain("open") == ["a"]
    assert client.drain("full") == ["first"]
    client.advance(RETRY_MS)
    assert queue.stuck == 0
    assert client.drain("full") == ["a"]
    assert client.drain("open") == []
