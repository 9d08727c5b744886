"""Policies: how queues and exchanges change when a policy is set, changed or removed."""

import re
from collections.abc import Callable

from leveret.engine.arguments.policies import Policy
from leveret.engine.history.tracing import TracedChronicle, TracedMessages
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.turns.turn import WORK_MAX
from leveret.engine.vhosts.policy_enforcer import SLICE
from leveret.wire.tables import plain_table, table_of
from tests.unit.engine.front import Client, deaths, got, names


def matcher(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)

    def matches(text: str) -> bool:
        return compiled.search(text) is not None

    return matches


def put(
    client: Client, pattern: str, *, name: str = "p", operator: bool = False, **keys: object
) -> None:
    """Set a policy, and let it take effect."""
    definition = table_of({key.replace("_", "-"): value for key, value in keys.items()})
    broker = client.stage.broker
    broker.begin_turn(client.stage.now_ms)
    enforcer = broker.enforcers["/"]
    enforcer.policies.put(Policy(name, matcher(pattern), "all", 0, definition), operator)
    enforcer.review()
    client.stage.end_turn()
    client.advance(0)
    assert not enforcer.is_busy


def drop(client: Client, name: str = "p", *, operator: bool = False) -> None:
    enforcer = client.stage.broker.enforcers["/"]
    enforcer.policies.drop(name, operator)
    enforcer.review()
    client.advance(0)


def test_a_queue_that_is_made_obeys_at_once() -> None:
    client = Client()
    put(client, "^limited", max_length=2)
    limited = client.queue("limited.q")
    other = client.queue("other")
    client.publish("limited.q", "a", "b", "c")
    assert client.drain("limited.q") == ["b", "c"]
    assert (limited.policy, limited.operator_policy) == ("p", None)
    assert plain_table(limited.effective_policy) == {"max-length": 2}
    assert (other.policy, other.effective_policy) == (None, {})


def test_a_new_limit_drops_what_is_over_it_and_dead_letters_it() -> None:
    client = Client()
    client.queue("grave")
    client.queue("q")
    client.publish("q", "a", "b", "c")
    put(client, "^q$", max_length=1, dead_letter_exchange="", dead_letter_routing_key="grave")
    assert client.drain("q") == ["c"]
    first = client.get("grave")
    assert deaths(first) == [("q", "maxlen", 1)]
    assert client.drain("grave") == ["b"]


def test_a_limit_in_bytes_and_an_argument_together() -> None:
    client = Client()
    queue = client.queue("q", x_max_length=5)
    put(client, "q", max_length_bytes=4, max_length=9)
    assert (queue.settings.max_length, queue.settings.max_bytes) == (5, 4)
    client.publish("q", "aa", "bb", "cc")
    assert client.drain("q") == ["bb", "cc"]


def test_messages_keep_the_expiry_that_they_came_with() -> None:
    """As measured on RabbitMQ 3.10: a new TTL applies to later messages only."""
    client = Client()
    client.queue("q")
    client.publish("q", "old")
    put(client, "q", message_ttl=100)
    client.publish("q", "new")
    client.advance(1000)
    assert client.get("q") is not None
    client.advance(0)
    assert client.drain("q") == []
    drop(client)
    client.publish("q", "lasting")
    client.advance(1000)
    assert client.drain("q") == ["lasting"]


def test_an_unused_queue_goes_when_its_new_time_is_over() -> None:
    client = Client()
    client.queue("q")
    client.advance(5000)
    put(client, "q", expires=300)
    client.advance(299)
    assert client.exists("q")
    client.advance(1)
    assert not client.exists("q")


def test_removing_a_policy_removes_its_expiry() -> None:
    client = Client()
    client.queue("q")
    put(client, "q", expires=300)
    drop(client)
    client.advance(1000)
    assert client.exists("q")


def test_overflow_refuses_where_the_policy_says_so() -> None:
    client = Client()
    client.queue("q")
    put(client, "q", max_length=1, overflow="reject-publish")
    client.send("confirm.select")
    assert names(client.publish("q", "a")) == ["basic.ack"]
    assert names(client.publish("q", "b")) == ["basic.nack"]
    drop(client)
    assert names(client.publish("q", "b")) == ["basic.ack"]
    assert client.drain("q") == ["a", "b"]


def test_a_delivery_limit_holds_on_a_classic_queue() -> None:
    client = Client()
    client.queue("grave")
    client.queue("q")
    put(
        client,
        "^q$",
        delivery_limit=1,
        dead_letter_exchange="",
        dead_letter_routing_key="grave",
    )
    client.publish("q", "a")
    assert got(client.consume("q")) == ["t:a"]
    assert got(client.reject(1)) == ["t:a!"]
    client.reject(2)
    assert deaths(client.get("grave")) == [("q", "delivery_limit", 1)]


def test_an_operator_limits_what_a_user_set() -> None:
    client = Client()
    queue = client.queue("q")
    put(client, "q", max_length=9)
    put(client, "q", name="o", operator=True, max_length=2)
    client.publish("q", "a", "b", "c")
    assert (queue.policy, queue.operator_policy) == ("p", "o")
    assert client.drain("q") == ["b", "c"]


def test_a_new_consumer_timeout_applies_to_existing_consumers() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a")
    client.consume("q")
    put(client, "q", consumer_timeout=1000)
    assert names(client.advance(999)) == []
    assert names(client.advance(1)) == ["basic.cancel"]


def test_retries_wait_as_the_policy_says() -> None:
    client = Client()
    client.queue("q")
    put(client, "q", delayed_retry_type="all", delayed_retry_min=500)
    client.publish("q", "a")
    client.consume("q")
    assert got(client.nack(1)) == []
    assert got(client.advance(500)) == ["t:a!"]


def test_an_alternate_exchange_comes_and_goes() -> None:
    client = Client()
    client.queue("rest")
    client.send("exchange.declare", exchange="rest", type="fanout")
    client.send("queue.bind", queue="rest", exchange="rest")
    client.send("exchange.declare", exchange="x", type="direct")
    client.publish("k", "lost", exchange="x")
    put(client, "^x$", alternate_exchange="rest")
    client.publish("k", "found", exchange="x")
    drop(client)
    client.publish("k", "lost", exchange="x")
    assert client.drain("rest") == ["found"]


def test_a_queue_and_an_exchange_remember_by_policy() -> None:
    client = Client()
    client.send("exchange.declare", exchange="x", type="fanout")
    queue = client.queue("q")
    client.send("queue.bind", queue="q", exchange="x")
    put(client, "^[qx]$", remember="history")
    vhost = client.stage.broker.vhost("/")
    client.publish("", "a", exchange="x")
    assert vhost.queues["history"].message_count() == 3, "published, routed, queued"
    assert isinstance(queue.chronicle, StreamChronicle)
    drop(client)
    client.publish("", "b", exchange="x")
    assert vhost.queues["history"].message_count() == 3
    assert queue.chronicle is None


def test_a_policy_cannot_remember_into_a_queue_that_is_no_stream() -> None:
    client = Client()
    client.queue("taken")
    queue = client.queue("q")
    put(client, "^q$", remember="taken")
    assert queue.chronicle is None
    (told,) = queue.turn.faults
    assert told == (
        "no life events are written for queue 'q' in vhost '/': its policy cannot be used: "
        "invalid arg 'x-remember' for queue 'q' in vhost '/': queue 'taken' is not a stream"
    )
    client.publish("q", "a")
    assert client.drain("q") == ["a"]


def test_duplicates_are_dropped_by_policy() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", "a", message_id="1")
    put(client, "q", deduplication={"header": "message_id"})
    client.publish("q", "b", message_id="1")
    client.publish("q", "c", message_id="1")
    assert client.drain("q") == ["a", "b"]
    put(client, "q", deduplication={"header": "message_id", "window_ms": 5000})
    client.publish("q", "d", message_id="1")
    assert client.drain("q") == [], "what was known is known still"
    drop(client)
    client.publish("q", "e", message_id="1")
    assert client.drain("q") == ["e"]


def test_an_exchange_drops_duplicates_by_policy() -> None:
    client = Client()
    client.queue("q")
    client.send("exchange.declare", exchange="x", type="fanout")
    client.send("queue.bind", queue="q", exchange="x")
    put(client, "^x$", deduplication={"header": "message_id"})
    client.publish("", "a", exchange="x", message_id="1")
    client.publish("", "b", exchange="x", message_id="1")
    assert client.drain("q") == ["a"]


def test_many_queues_are_looked_at_in_slices() -> None:
    client = Client()
    vhost = client.stage.broker.vhost("/")
    for number in range(3 * SLICE):
        vhost.declare_queue(f"q{number}", durable=True, arguments={})
    enforcer = client.stage.broker.enforcers["/"]
    definition = table_of({"max-length": 1})
    enforcer.policies.put(Policy("p", matcher(""), "queues", 0, definition), False)
    enforcer.review()
    enforcer.work()
    done = [queue for queue in vhost.queues.values() if queue.policy == "p"]
    assert len(done) <= SLICE
    assert enforcer.is_busy
    client.advance(0)
    assert all(queue.policy == "p" for queue in vhost.queues.values())


def test_slow_patterns_make_slices_short_and_declares_heavy() -> None:
    client = Client()
    vhost = client.stage.broker.vhost("/")
    turn = vhost.turn
    enforcer = client.stage.broker.enforcers["/"]
    definition = table_of({"max-length": 1})
    for name in ("p", "p"):
        policy = Policy(name, matcher(""), "queues", 0, definition, WORK_MAX)
        enforcer.policies.put(policy, False)
    assert enforcer.policies.size == WORK_MAX
    before = turn.work
    for number in range(10):
        vhost.declare_queue(f"{number}" * 100, durable=True, arguments={})
    assert turn.work - before >= 10 * WORK_MAX
    enforcer.review()
    enforcer.work()
    assert len(vhost.queues) + len(vhost.exchanges) - len(enforcer._to_review) < 10
    enforcer.policies.drop("p", False)
    assert enforcer.policies.size == 0


def test_a_long_queue_is_cut_in_slices_and_takes_no_more_meanwhile() -> None:
    client = Client()
    queue = client.queue("q")
    for _ in range(12):
        client.publish("q", *["x"] * 1000)
    put(client, "q", max_length=10)
    assert queue.message_count() == 10
    assert queue.dropped == 11_990


def test_a_stream_forgets_as_the_policy_says() -> None:
    client = Client()
    stream = client.queue("s", x_queue_type="stream", x_stream_max_segment_size_bytes=1000)
    for _ in range(20):
        client.publish("s", "x" * 500)
    before = stream.message_count()
    put(client, "s", max_length_bytes=2000)
    assert 0 < stream.message_count() < before
    assert stream.policy == "p"


def test_a_policy_that_remembers_leaves_the_tracing_of_a_queue() -> None:
    client = Client()
    client.stage.broker.turn.traced_messages = TracedMessages()
    queue = client.queue("q")
    put(client, "^q$", remember="history")
    assert isinstance(queue.chronicle, TracedChronicle)
    assert isinstance(queue.chronicle.inner, StreamChronicle)
    drop(client)
    assert isinstance(queue.chronicle, TracedChronicle)
    assert queue.chronicle.inner is None


def test_a_new_timeout_ends_the_wait_for_a_cancelled_single_active_consumer() -> None:
    client = Client()
    client.queue("q", x_single_active_consumer=True)
    client.consume("q", "a", prefetch=1)
    client.consume("q", "b", on=2)
    client.publish("q", "1", "2")
    client.send("basic.cancel", consumer_tag="a")
    put(client, "^q$", consumer_timeout=1000)
    assert got(client.advance(999)) == []
    assert got(client.advance(1)) == ["b:1!", "b:2"]
