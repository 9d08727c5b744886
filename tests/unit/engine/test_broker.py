"""Turns: the end of a turn carries out everything that its commands have caused."""

import pytest

from leveret.engine.broker import Broker
from leveret.engine.timer_queue import NEVER
from leveret.errors import NotFoundError
from tests.protocol.stage import method
from tests.unit.engine.front import Client, got, names


def test_a_new_broker_has_one_vhost_and_waits_for_nothing() -> None:
    broker = Broker(1)
    assert list(broker.vhosts) == ["/"]
    assert broker.timers.next_due_ms() == NEVER
    with pytest.raises(NotFoundError, match="vhost other not found"):
        broker.vhost("other")
    assert broker.add_vhost("other") is broker.vhost("other")


def test_a_chain_of_dead_letters_runs_to_its_end_in_one_turn() -> None:
    client = Client()
    client.queue("end")
    for number in range(20):
        target = f"q{number - 1}" if number else "end"
        client.queue(
            f"q{number}",
            x_message_ttl=0,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=target,
        )
    client.consume("end")
    assert got(client.publish("q19", "a")) == ["t:a"]


def test_a_message_that_expires_into_its_own_queue_ends() -> None:
    client = Client()
    queue = client.queue(
        "q", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="q"
    )
    client.publish("q", "a")
    assert (queue.ready.count, queue.expired) == (0, 1)


def test_deliveries_go_before_the_end_of_their_consumer_and_confirms_come_last() -> None:
    client = Client()
    client.queue("q")
    client.consume("q")
    client.send("confirm.select")
    assert names(client.publish("q", "a")) == ["basic.deliver", "basic.ack"]


def test_an_auto_delete_queue_is_saved_by_a_consumer_of_the_same_turn() -> None:
    client = Client()
    client.send("queue.declare", queue="q", auto_delete=True)
    client.consume("q", "a")
    client.peer.feed(
        method(1, "basic.cancel", consumer_tag="a")
        + method(1, "basic.consume", queue="q", consumer_tag="b")
    )
    assert names(client.peer.take()) == ["basic.cancel-ok", "basic.consume-ok"]
    assert client.exists("q")


def test_the_pulse_is_woken_once_for_each_time_at_which_a_message_is_due() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True)
    for number in range(300):
        client.publish("q", str(number), headers={"x-delay": 1000 + number})
    wakes = 0
    while len(queue.scheduled) != 0:
        client.stage.advance(client.stage.next_due_ms())
        wakes += 1
    assert wakes == 300
    assert client.drain("q") == [str(number) for number in range(300)]


def test_many_that_are_due_at_one_time_are_one_wake_up() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True)
    client.publish("q", *map(str, range(500)), headers={"x-delay": 1000})
    client.stage.broker.on_pulse(client.stage.now_ms + 1000)
    assert (queue.ready.count, len(queue.scheduled)) == (500, 0)


@pytest.mark.compiled_only("so many take long on the sources, and do the same there")
def test_a_large_purge_is_freed_over_several_wake_ups() -> None:
    client = Client()
    client.queue("q")
    client.publish("q", *["x"] * 50_000)
    client.send("queue.purge", queue="q")
    beats = 0
    while client.stage.broker.timers.next_due_ms() == 1 or client.stage.next_due_ms() == 0:
        client.stage.broker.on_pulse(client.stage.now_ms)
        client.stage.end_turn()
        beats += 1
    assert beats == 3
