"""Deduplication in queues and exchanges, as clients see it."""

from typing import Any

import pytest

from leveret.engine.arguments.queue_arguments import DeduplicationSettings
from leveret.engine.deduplication.deduplication import (
    FORGET_BATCH,
    FORGET_EVERY_MS,
    NO_KEY,
    Deduplication,
    key_of,
)
from leveret.engine.deduplication.key_room import KeyRoom
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.timer_queue import TimerQueue
from leveret.wire.scan import BYTE, FLOAT, LONG
from leveret.wire.tables import Field, field_of, table_of
from tests.compat.client import Method
from tests.protocol.stage import method, publish
from tests.unit.engine.front import Client, names, refusal

WINDOW_MS = 60_000


def client(**queues: dict[str, object]) -> Client:
    made = Client()
    for name, arguments in queues.items():
        made.queue(name, **arguments)
    return made


def once(**entries: object) -> dict[str, Any]:
    return {"x_deduplication": entries}


def key(value: object, **more: object) -> dict[str, Any]:
    return {"headers": {"x-deduplication-id": value, **more}}


def exchange(c: Client, name: str, kind: str = "direct", **arguments: object) -> Exchange:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    events = c.send("exchange.declare", exchange=name, type=kind, arguments=table)
    assert names(events) == ["exchange.declare-ok"], events
    return c.stage.broker.vhost("/").exchanges[name]


def bind(c: Client, source: str, queue: str, routing_key: str = "k") -> None:
    events = c.send("queue.bind", queue=queue, exchange=source, routing_key=routing_key)
    assert names(events) == ["queue.bind-ok"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (field_of(5), Field(LONG, 5)),
        (field_of(5), Field(BYTE, 5)),
        (field_of("a"), field_of(b"a")),
        (field_of(1.5), Field(FLOAT, 1.5)),
        (field_of([1, "a"]), field_of([1, "a"])),
    ],
)
def test_same_value_is_the_same_key(one: Field, other: Field) -> None:
    assert len(key_of(one)) == 16
    assert key_of(one) == key_of(other)


def test_different_values_are_different_keys() -> None:
    values = ["1", 1, -1, 1.0, True, False, "", "a", "A", [1], ["1"], {"a": 1}, {"a": "1"}, "01"]
    keys = {key_of(field_of(value)) for value in values}
    assert len(keys) == len(values)


def test_nothing_and_empty_text_are_no_keys() -> None:
    assert key_of(None) == NO_KEY
    for value in (None, "", b""):
        assert key_of(field_of(value)) == NO_KEY


def test_queue_drops_a_key_that_it_remembers() -> None:
    c = client(q=once())
    c.publish("q", "first", "same turn", **key("a"))
    c.publish("q", "again", **key("a"))
    c.publish("q", "other", **key("b"))
    queue = c.stage.broker.vhost("/").queues["q"]
    assert queue.deduplicated == 2
    assert c.drain("q") == ["first", "other"]
    c.publish("q", "after it was taken", **key("a"))
    assert c.drain("q") == []


def test_messages_without_a_key_pass() -> None:
    c = client(q=once())
    c.publish("q", "1", "2")
    c.publish("q", "3", "4", **key(None))
    c.publish("q", "5", "6", **key(""))
    c.publish("q", "7", "8", headers={"another": "a"})
    assert c.drain("q") == list("12345678")


def test_header_is_chosen_by_name() -> None:
    c = client(q=once(header="id"), m=once(header="message_id"))
    for _ in range(2):
        c.publish("q", "id", headers={"id": 7})
        c.publish("q", "default", **key("a"))
        c.publish("m", "property", message_id="x")
        c.publish("m", "none", message_id="")
        c.publish("m", "header", headers={"message_id": "x"})
    assert c.drain("q") == ["id", "default", "default"]
    assert c.drain("m") == ["property", "none", "header", "none", "header"]


def test_a_key_is_forgotten_after_its_window() -> None:
    c = client(q=once(window_ms=WINDOW_MS))
    c.publish("q", "1", **key("a"))
    c.advance(WINDOW_MS - 1)
    c.publish("q", "2", **key("a"))
    c.advance(1)
    c.publish("q", "3", **key("a"))
    c.advance(WINDOW_MS - 1)
    c.publish("q", "4", **key("a"))
    assert c.drain("q") == ["1", "3"]


def test_a_duplicate_does_not_lengthen_the_window() -> None:
    c = client(q=once(window_ms=100))
    for number in range(4):
        c.publish("q", str(number), **key("a"))
        c.advance(50)
    assert c.drain("q") == ["0", "2"]


def test_memory_of_old_keys_is_given_back_without_a_publish() -> None:
    c = client(q=once(window_ms=WINDOW_MS))
    memory = c.stage.broker.vhost("/").queues["q"].deduplication
    assert memory is not None
    for number in range(3):
        c.publish("q", "m", **key(number))
        c.advance(10_000)
    c.drain("q")
    assert memory.count() == 3
    c.advance(2 * WINDOW_MS)
    assert memory.count() == 0
    assert c.stage.next_due_ms() == -1


def test_many_old_keys_are_dropped_in_batches() -> None:
    timers = TimerQueue()
    settings = DeduplicationSettings(table_of({"window_ms": 100}))
    memory = Deduplication(settings, 1, False, timers, KeyRoom("/"))
    for number in range(FORGET_BATCH + 10):
        memory.remember(key_of(field_of(number)), 1000, None)
    memory.remember(key_of(field_of("last")), 1050, None)
    assert timers.next_due_ms() == 1100
    timers.run(1100)
    assert memory.count() == 11
    assert timers.next_due_ms() == 1100
    timers.run(1100)
    assert memory.count() == 1
    assert timers.next_due_ms() == 1100 + FORGET_EVERY_MS
    timers.run(1100 + FORGET_EVERY_MS)
    assert (memory.count(), timers.next_due_ms()) == (0, 0)


def test_the_oldest_key_is_forgotten_when_there_are_too_many() -> None:
    c = client(q=once(size=2))
    for value in "abcab":
        c.publish("q", value, **key(value))
    assert c.drain("q") == ["a", "b", "c", "a", "b"]
    c.publish("q", "b", **key("b"))
    assert c.drain("q") == []


def test_other_queues_take_their_copy() -> None:
    c = client(q=once(), plain={})
    exchange(c, "x", "fanout")
    bind(c, "x", "q")
    bind(c, "x", "plain")
    c.publish("k", "1", "2", exchange="x", **key("a"))
    assert c.drain("q") == ["1"]
    assert c.drain("plain") == ["1", "2"]


def test_message_that_the_queue_refused_is_not_remembered() -> None:
    c = client(q=once() | {"x_max_length": 1, "x_overflow": "reject-publish"})
    c.send("confirm.select")
    assert names(c.publish("q", "1", **key("a"))) == ["basic.ack"]
    assert names(c.publish("q", "2", **key("b"))) == ["basic.nack"]
    assert names(c.publish("q", "1 again", **key("a"))) == ["basic.ack"]
    assert c.drain("q") == ["1"]
    assert names(c.publish("q", "2 again", **key("b"))) == ["basic.ack"]
    assert c.drain("q") == ["2 again"]


def test_duplicates_are_confirmed_and_not_returned() -> None:
    c = client(q=once())
    c.send("confirm.select")
    frames = publish(1, "q", b"m", key("a"), mandatory=True)
    c.peer.feed(frames * 3)
    (event,) = c.peer.take()
    assert isinstance(event, Method)
    assert (event.name, event.fields["delivery_tag"]) == ("basic.ack", 3)
    assert c.drain("q") == ["m"]


def test_publishes_of_a_transaction_are_checked_at_commit() -> None:
    c = client(q=once())
    c.send("tx.select", on=2)
    c.publish("q", "in tx", "twice", on=2, **key("a"))
    c.publish("q", "before", **key("a"))
    assert names(c.send("tx.commit", on=2)) == ["tx.commit-ok"]
    assert c.drain("q") == ["before"]
    c.publish("q", "rolled back", on=2, **key("b"))
    c.send("tx.rollback", on=2)
    c.publish("q", "after", **key("b"))
    assert c.drain("q") == ["after"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_returned_message_is_not_a_duplicate(kind: str) -> None:
    c = client(q=once() | {"x_queue_type": kind})
    c.publish("q", "m", **key("a"))
    found = c.get("q", no_ack=False)
    assert found is not None
    c.nack(1)
    assert c.drain("q") == ["m"]


def test_dead_letters_are_never_duplicates() -> None:
    """A message that returns through a dead-letter exchange reaches a queue that has its key."""
    retry: dict[str, object] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "wait"}
    wait: dict[str, object] = {
        "x_dead_letter_exchange": "",
        "x_dead_letter_routing_key": "q",
        "x_message_ttl": 10,
    }
    c = client(q=once() | retry, wait=once() | wait)
    c.publish("q", "m", **key("a"))
    for _ in range(3):
        found = c.get("q", no_ack=False)
        assert found is not None
        c.reject(int(str(found.fields["delivery_tag"])), requeue=False)
        c.advance(10)
    assert c.drain("q") == ["m"]
    c.publish("q", "again", **key("a"))
    assert c.drain("q") == []


def test_delayed_queue_remembers_scheduled_messages() -> None:
    c = client(q=once(window_ms=WINDOW_MS) | {"x_delayed": True})
    c.publish("q", "1", "2", **key("a", **{"x-delay": 1000}))
    c.advance(1000)
    assert c.drain("q") == ["1"]


def test_keys_are_dropped_with_the_queue() -> None:
    c = client(q=once())
    c.publish("q", "1", **key("a"))
    memory = c.stage.broker.vhost("/").queues["q"].deduplication
    assert memory is not None
    c.send("queue.delete", queue="q")
    assert (memory.count(), memory.wake_ms) == (0, 0)
    c.queue("q", **once())
    c.publish("q", "2", **key("a"))
    assert c.drain("q") == ["2"]


def test_an_exchange_drops_duplicates_before_it_routes() -> None:
    c = client(q={}, r={})
    x = exchange(c, "x", x_deduplication={})
    bind(c, "x", "q")
    bind(c, "x", "r", "other")
    c.publish("k", "1", "2", exchange="x", **key("a"))
    c.publish("other", "3", exchange="x", **key("a"))
    c.publish("other", "4", exchange="x", **key("b"))
    c.publish("k", "5", "6", exchange="x")
    assert c.drain("q") == ["1", "5", "6"]
    assert c.drain("r") == ["4"]
    assert (x.deduplicated, x.published_in) == (2, 6)


def test_unroutable_message_is_not_remembered() -> None:
    c = client(q={})
    exchange(c, "x", x_deduplication={})
    c.send("confirm.select")
    frames = publish(1, "k", b"m", key("a"), exchange="x", mandatory=True)
    c.peer.feed(frames)
    assert names(c.peer.take()) == ["basic.return", "basic.ack"]
    bind(c, "x", "q")
    c.peer.feed(frames)
    assert names(c.peer.take()) == ["basic.ack"]
    c.send("queue.unbind", queue="q", exchange="x", routing_key="k")
    c.peer.feed(frames)
    assert names(c.peer.take()) == ["basic.ack"], "a duplicate counts as routed"
    assert c.drain("q") == ["m"]


def test_message_that_a_queue_refused_is_not_remembered_by_the_exchange() -> None:
    c = client(q={"x_max_length": 0, "x_overflow": "reject-publish"})
    x = exchange(c, "x", x_deduplication={})
    bind(c, "x", "q")
    c.send("confirm.select")
    for _ in range(2):
        assert names(c.publish("k", "m", exchange="x", **key("a"))) == ["basic.nack"]
    assert x.deduplicated == 0


def test_message_that_the_alternate_exchange_took_is_remembered() -> None:
    c = client(q={})
    exchange(c, "other", "fanout")
    bind(c, "other", "q")
    exchange(c, "x", x_deduplication={}, alternate_exchange="other")
    c.publish("nowhere", "1", "2", exchange="x", **key("a"))
    assert c.drain("q") == ["1"]


def test_only_the_first_exchange_checks_for_duplicates() -> None:
    c = client(q={})
    exchange(c, "first", "fanout")
    exchange(c, "second", "fanout", x_deduplication={})
    bind(c, "second", "q")
    c.send("exchange.bind", destination="second", source="first")
    c.publish("k", "1", "2", exchange="first", **key("a"))
    assert c.drain("q") == ["1", "2"]


def test_delayed_exchange_remembers_messages_that_it_holds() -> None:
    c = client(q=once())
    exchange(c, "x", "x-delayed-message", x_delayed_type="direct", x_deduplication={})
    bind(c, "x", "q")
    c.publish("k", "1", "2", exchange="x", **key("a", **{"x-delay": 1000}))
    c.advance(1000)
    c.publish("k", "3", exchange="x", **key("a"))
    assert c.drain("q") == ["1"]


def test_delayed_message_is_not_a_duplicate_for_its_queue() -> None:
    c = client(q=once())
    exchange(c, "x", "x-delayed-message", x_delayed_type="direct")
    bind(c, "x", "q")
    c.publish("k", "late", exchange="x", **key("a", **{"x-delay": 1000}))
    c.publish("q", "now", **key("a"))
    c.advance(1000)
    assert c.drain("q") == ["now", "late"]


def test_exchange_and_queue_can_both_check_for_duplicates() -> None:
    c = client(q=once(header="b"))
    exchange(c, "x", x_deduplication={"header": "a"})
    bind(c, "x", "q")
    for a, b in [(1, 1), (1, 2), (2, 1), (3, 3)]:
        c.publish("k", f"{a}{b}", exchange="x", headers={"a": a, "b": b})
    assert c.drain("q") == ["11", "33"]


def test_cached_route_is_renewed_when_a_deduplicating_queue_is_bound() -> None:
    c = client(plain={})
    exchange(c, "x", "fanout")
    bind(c, "x", "plain")
    c.publish("k", "1", exchange="x", **key("a"))
    c.queue("q", **once())
    bind(c, "x", "q")
    c.publish("k", "2", "3", exchange="x", **key("a"))
    assert c.drain("plain") == ["1", "2", "3"]
    assert c.drain("q") == ["2"]


def test_bad_arguments_of_an_exchange_are_refused() -> None:
    c = Client()
    told = "invalid arg 'x-deduplication' for exchange 'x' in vhost '/': "
    for arguments, reason in [
        (5, "{unacceptable_type,signedint}"),
        ({"size": 0}, "{size,{value_zero,0}}"),
        ({"Size": 1}, '{unknown_entry,"Size"}'),
    ]:
        frames = method(
            1,
            "exchange.declare",
            exchange="x",
            type="direct",
            arguments={"x-deduplication": arguments},
        )
        c.peer.feed(frames)
        assert refusal(c.peer.take()) == ("channel", 406, f"PRECONDITION_FAILED - {told}{reason}")
        c.send("channel.close-ok")
        c.peer.open_channel(1)
        assert "x" not in c.stage.broker.vhost("/").exchanges


def test_internal_exchange_cannot_deduplicate() -> None:
    c = Client()
    events = c.send(
        "exchange.declare",
        exchange="x",
        type="direct",
        internal=True,
        arguments={"x-deduplication": {}},
    )
    assert refusal(events)[2].endswith("internal_exchange")


def test_redeclaring_needs_the_same_deduplication() -> None:
    c = client(q=once(size=5))
    exchange(c, "x", x_deduplication={"size": 5})
    wide = {"x-deduplication": {"size": ("l", 5)}}
    c.queue("q", **once(size=5))
    assert names(c.send("queue.declare", queue="q", arguments=wide)) == ["queue.declare-ok"]
    others: list[dict[str, Any]] = [{}, {"x-deduplication": {}}, {"x-deduplication": {"size": 6}}]
    for other in others:
        told = refusal(c.send("exchange.declare", exchange="x", type="direct", arguments=other))
        assert told[2].startswith("PRECONDITION_FAILED - inequivalent arg 'x-deduplication' for ex")
        c.send("channel.close-ok")
        c.peer.open_channel(1)
        told = refusal(c.send("queue.declare", queue="q", arguments=other))
        assert told[2].startswith("PRECONDITION_FAILED - inequivalent arg 'x-deduplication' for qu")
        c.send("channel.close-ok")
        c.peer.open_channel(1)
