"""One input cannot hold up the node: a turn makes a bounded number of copies, and so does a chain.

The tests count the work of each turn. A chain of deaths without a consumer makes a bounded number
of copies of one message, whatever the queues and exchanges are.
"""

from math import ceil
from typing import Any

import pytest

from leveret.engine.commands.dead_letter import CHAIN_MAX, SPREAD_FREE, SPREAD_MAX
from leveret.engine.commands.publishing import LOOKS_PER_COPY, ROUTE_QUEUES_MAX
from leveret.engine.exchanges.exchange import COPY_STEPS
from leveret.engine.turns.turn import DEATH_WORK, WORK_MAX
from tests.protocol.stage import closes, method, publish
from tests.unit.engine.front import Client, deaths, headers

NO_EXCHANGE = "NOT_FOUND - no exchange 'absent' in vhost '/'"
CHAIN = {"dead_letter_chain"}


def fanout_queues(client: Client, count: int, exchange: str = "f", **arguments: object) -> None:
    """Declare a fanout with so many queues."""
    client.send("exchange.declare", exchange=exchange, type="fanout")
    for number in range(count):
        name = f"{exchange}{number}"
        client.queue(name, **arguments)
        client.send("queue.bind", queue=name, exchange=exchange)


def copies_made(client: Client) -> int:
    """Return how many messages were put into queues since the start."""
    return sum(queue.published for queue in client.stage.broker.vhost("/").queues.values())


def dropped(client: Client) -> set[str]:
    return set(client.stage.broker.turn.losses.dropped) - {"dead_letter_cycle"}


def feed_turn(client: Client, data: bytes) -> int:
    """Feed bytes in one turn alone. Return the work of that turn, in copies."""
    broker = client.stage.broker
    broker.begin_turn(client.stage.now_ms)
    client.peer.connection.feed(data)
    broker.end_turn()
    broker.perform()
    return broker.turn.work


def next_turn(client: Client) -> int:
    """Run one more turn. Return its work, in copies."""
    broker = client.stage.broker
    broker.begin_turn(client.stage.now_ms)
    client.peer.connection.go_on()
    broker.end_turn()
    broker.perform()
    return broker.turn.work


@pytest.mark.parametrize("reason", ["x_message_ttl", "x_max_length"])
@pytest.mark.parametrize("count", [2, 5, 12, 40, 120])
def test_queues_that_dead_letter_to_each_other_make_bounded_copies(count: int, reason: str) -> None:
    client = Client()
    arguments: dict[str, Any] = {"x_dead_letter_exchange": "f", reason: 0}
    fanout_queues(client, count, **arguments)
    client.publish("", "a", exchange="f")
    client.advance(1)
    # Each level of the chain has at most so many copies.
    level = max(SPREAD_MAX, SPREAD_FREE * count)
    assert copies_made(client) <= min(count, CHAIN_MAX) * level
    assert client.stage.broker.vhost("/").queues["f0"].ready.count == 0
    if count > 5:
        assert dropped(client) == CHAIN


def test_nine_queues_that_dead_letter_to_each_other_make_few_copies() -> None:
    client = Client()
    fanout_queues(client, 9, x_dead_letter_exchange="f", x_message_ttl=0)
    client.publish("", "a", exchange="f")
    # 9, 9*8, 9*8*7 and 9*8*7*6 copies; the next level would have more than SPREAD_MAX.
    assert copies_made(client) == 9 + 72 + 504 + 3024
    assert client.stage.broker.turn.losses.dropped == {"dead_letter_chain": 3024}


def test_copies_of_a_chain_are_made_in_several_turns() -> None:
    client = Client()
    fanout_queues(client, 12, x_dead_letter_exchange="f", x_message_ttl=0)
    turns = [feed_turn(client, publish(1, "", b"a", exchange="f"))]
    while client.stage.broker.turn.leaving:
        turns.append(next_turn(client))
    assert len(turns) > 2
    assert max(turns) < WORK_MAX + DEATH_WORK + 12


@pytest.mark.parametrize("count", [ROUTE_QUEUES_MAX, 2 * ROUTE_QUEUES_MAX])
def test_publishes_to_many_queues_are_made_in_several_turns(count: int) -> None:
    client = Client()
    client.send("confirm.select")
    fanout_queues(client, count)
    data = b"".join(publish(1, "", b"%d" % number, exchange="f") for number in range(50))
    turns = [feed_turn(client, data)]
    while client.peer.connection.has_rest:
        turns.append(next_turn(client))
    # A message to more queues than a route remembers is routed anew, which is work too.
    copy_work = 1 if count <= ROUTE_QUEUES_MAX else 1 + (COPY_STEPS + 1) / LOOKS_PER_COPY
    publishes_per_turn = ceil(WORK_MAX / (count * copy_work))
    assert len(turns) == ceil(50 / publishes_per_turn)
    assert max(turns) < WORK_MAX + count * copy_work + 1
    client.stage.end_turn()
    client.peer.take()
    assert client.peer.connection.channels[1].confirmed_seq == 50
    for queue in ("f0", f"f{count - 1}"):
        assert client.drain(queue) == [str(number) for number in range(50)]


def test_rest_of_the_input_is_handled_after_an_error_of_another_channel() -> None:
    client = Client()
    fanout_queues(client, 400)
    client.queue("last")
    bad = publish(2, "", b"x", exchange="absent")
    many = b"".join(publish(1, "", b"x", exchange="f") for _ in range(30))
    client.peer.feed(many + bad + publish(3, "last", b"y"))
    assert closes(client.peer.take()) == [("channel", 404, NO_EXCHANGE)]
    assert client.drain("last") == ["y"]


def test_messages_rejected_in_one_go_are_dead_lettered_in_several_turns_and_in_order() -> None:
    client = Client()
    client.queue("dead")
    client.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    count = 3 * WORK_MAX // DEATH_WORK
    client.publish("q", *[str(number) for number in range(count)])
    client.consume("q", on=2)
    client.nack(0, on=2, multiple=True, requeue=False)
    queue = client.stage.broker.vhost("/").queues["dead"]
    assert queue.ready.count == count
    assert [client.get("dead").body for _ in range(3)] == [b"0", b"1", b"2"]  # type: ignore[union-attr]


def test_message_may_expire_through_a_row_of_queues_and_then_spread() -> None:
    """Delays of some libraries are about thirty queues in a row."""
    client = Client()
    fanout_queues(client, 300, "end")
    for number in range(40):
        following = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": f"d{number + 1}"}
        client.queue(f"d{number}", x_message_ttl=10, **following)
    client.queue("d40", x_message_ttl=10, x_dead_letter_exchange="end")
    client.publish("d0", "a")
    client.advance(1_000)
    event = client.get("end299")
    assert event is not None and event.body == b"a"
    assert len(deaths(event)) == 41
    assert dropped(client) == set()


def test_message_that_expires_through_too_many_queues_is_dropped_and_counted() -> None:
    client = Client()
    for number in range(CHAIN_MAX + 5):
        following = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": f"d{number + 1}"}
        client.queue(f"d{number}", x_message_ttl=0, **following)
    client.publish("d0", "a")
    client.advance(1)
    assert dropped(client) == CHAIN
    assert copies_made(client) == CHAIN_MAX + 1


def test_many_subscribers_whose_messages_expire_to_a_few_queues_lose_none() -> None:
    client = Client()
    fanout_queues(client, SPREAD_FREE, "dead")
    fanout_queues(client, 700, x_message_ttl=10, x_dead_letter_exchange="dead")
    client.publish("", "a", exchange="f")
    client.advance(10)
    assert client.stage.broker.vhost("/").queues["dead0"].ready.count == 700
    assert dropped(client) == set()


def test_rejection_begins_a_new_chain() -> None:
    client = Client()
    fanout_queues(client, 150, "wide")
    client.queue("work", x_dead_letter_exchange="", x_dead_letter_routing_key="wait")
    client.queue("wait", x_dead_letter_exchange="wide", x_message_ttl=1)
    client.send("queue.bind", queue="work", exchange="wide")
    client.publish("work", "a")
    for _ in range(3):
        event = client.get("work", no_ack=False)
        assert event is not None
        client.reject(int(str(event.fields["delivery_tag"])), requeue=False)
        client.advance(5)
    assert len(client.drain("wide0")) == 3
    assert dropped(client) == set()


@pytest.mark.parametrize("copies", [-(2**63), -1, 0, 2**63 - 1, "many", True, None, [1]])
def test_made_up_copies_harm_nothing(copies: object) -> None:
    client = Client()
    fanout_queues(client, 2, "dead")
    client.queue("q", x_message_ttl=1, x_dead_letter_exchange="dead")
    death = {"queue": "other", "reason": "expired", "count": 1, "copies": copies}
    client.publish("q", "a", headers={"x-death": [death]})
    client.advance(5)
    assert client.stage.broker.turn.fault_count == 0
    if copies != 2**63 - 1:  # the publisher says that there are too many copies already
        event = client.get("dead1")
        assert event is not None
        newest = headers(event)["x-death"][0]  # type: ignore[index]
        assert newest["copies"] == 2


def test_queues_are_emptied_in_several_turns() -> None:
    for name in ("queue.purge", "queue.delete"):
        client = Client()
        fanout_queues(client, 25)
        each = WORK_MAX // 5
        client.peer.feed(publish(1, "", b"x", exchange="f") * each)
        data = b"".join(method(1, name, queue=f"f{number}") for number in range(25))
        turns = [feed_turn(client, data)]
        while client.peer.connection.has_rest:
            turns.append(next_turn(client))
        assert len(turns) == 2
        assert max(turns) < WORK_MAX + each
        assert all(
            not queue.ready.count for queue in client.stage.broker.vhost("/").queues.values()
        )


def test_routings_past_many_bindings_are_made_in_several_turns() -> None:
    client = Client()
    client.send("exchange.declare", exchange="h", type="headers")
    client.queue("q")
    for number in range(400):
        client.send(
            "queue.bind",
            queue="q",
            exchange="h",
            routing_key=str(number),
            arguments={"a": ("V", None), "b": "1"},
        )
    data = publish(1, "", b"x", {"headers": {"a": "1"}}, exchange="h") * 500
    turns = [feed_turn(client, data)]
    while client.peer.connection.has_rest:
        turns.append(next_turn(client))
    assert len(turns) > 1
